"""Numbers that a paper quotes from another paper: runs of that paper's experiment stand for them."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.published.numbers import published, quoted_from
from fedflat.analysis.tables.counterparts import Place, Quoted
from fedflat.analysis.tables.layout import TableLayout
from fedflat.analysis.tables.published_keys import of_entry
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.methods.catalog import CATALOG


@dataclass(frozen=True)
class Quotations:
    """The quoted entries of a table: for each, the cells of the other paper's experiment, whose files are `tidy`."""

    paper: str
    tidy: Tidy
    cells: Mapping[Place, tuple[CellAddress, ...]]

    @property
    def experiment(self) -> Experiment:
        """The other paper's experiment, as it is requested."""
        return self.tidy.experiment

    @property
    def all_cells(self) -> tuple[CellAddress, ...]:
        """The cells of all quoted entries that the other experiment has."""
        cells = dict.fromkeys(itertools.chain.from_iterable(self.cells.values()))
        return tuple(cell for cell in cells if self.experiment.has_cell(cell))


class EntrySource(NamedTuple):
    """Where the values of an entry come from: cells, most often one, and their experiment."""

    experiment: Experiment
    cells: tuple[CellAddress, ...]

    @property
    def exists(self) -> bool:
        """Whether the experiment has all cells: a part of an experiment may lack some methods."""
        return all(self.experiment.has_cell(cell) for cell in self.cells)

    @property
    def seeds(self) -> int:
        """The number of seeds that all cells have."""
        parts = (self.experiment.resolved_parts[cell.setting.dataset] for cell in self.cells)
        return min(len(part.grid.seeds) for part in parts)


def source(layout: TableLayout, place: Place, experiment: Experiment, quoted: Quotations | None) -> EntrySource:
    """Where an entry has its values from: the table's experiment, or that of a quoted paper."""
    if quoted is not None and place in quoted.cells:
        return EntrySource(quoted.experiment, quoted.cells[place])
    b, method, c = place
    settings = layout.settings_of(layout.blocks[b], layout.columns[c], experiment)
    return EntrySource(experiment, tuple(CellAddress(setting, method) for setting in settings))


def own_cells(layout: TableLayout, experiment: Experiment, quoted: Quotations | None) -> tuple[CellAddress, ...]:
    """The shown cells of the table's own experiment: those of entries that are not quoted."""
    if quoted is None:
        return layout.cells(experiment)
    places = itertools.product(range(len(layout.blocks)), layout.methods, range(len(layout.columns)))
    sources = (source(layout, place, experiment, quoted) for place in places if place not in quoted.cells)
    shown = {cell for one in sources for cell in one.cells}
    return tuple(cell for cell in layout.cells(experiment) if cell in shown)


def quotations(layout: TableLayout, experiment: Experiment, paper: str, quoted: Quoted, theirs: Tidy) -> Quotations:
    """The quotations of a paper's table: its published numbers with the note `quoted`.

    `experiment`: that of the table; `theirs`: the tidy files of the quoted paper's experiment. A `UserError` if a
    quoted setting has no counterpart there, if both experiments have a part with the same label, or if a number is
    quoted from another table.
    """
    for part in quoted.parts.values():
        if part not in theirs.experiment.resolved_parts:
            raise unknown(f"part of experiment {theirs.experiment.name} in quoted", part, theirs.experiment.parts)
        if part in experiment.resolved_parts:
            raise UserError(
                f"quoted: experiments {experiment.name} and {theirs.experiment.name} both have a part {part}"
            )
    numbers = published(paper)
    numbers = _quoted_numbers(numbers[numbers["table"] == layout.published], quoted)
    cells = {}
    for (b, block), method, (c, column) in itertools.product(
        enumerate(layout.blocks), layout.methods, enumerate(layout.columns)
    ):
        if not of_entry(numbers, layout, experiment, block, method, column).empty:
            settings = layout.settings_of(block, column, experiment)
            cells[b, method, c] = tuple(CellAddress(_counterpart(setting, quoted), method) for setting in settings)
    return Quotations(quoted.paper, theirs, cells)


def _quoted_numbers(numbers: pd.DataFrame, quoted: Quoted) -> pd.DataFrame:
    """The rows of a table whose notes say that the number is quoted; all must be from the table that `quoted` names."""
    title = CATALOG[quoted.paper].title if quoted.paper in CATALOG else quoted.paper
    wanted = f"{title} table {quoted.table}"
    sources = {note: quoted_from(note) for note in numbers["note"]}
    for note, source_of_note in sources.items():
        if source_of_note not in (None, wanted):
            raise UserError(f"quoted: a number has the note '{note}', but the layout names {wanted}")
    return numbers[[sources[note] is not None for note in numbers["note"]]]


def _counterpart(setting: Setting, quoted: Quoted) -> Setting:
    """The same setting in the other experiment."""
    if setting.dataset not in quoted.parts:
        raise unknown("part in quoted", setting.dataset, quoted.parts)
    return Setting(quoted.parts[setting.dataset], setting.partition, setting.participation)
