"""Fill a table: a YAML layout over an experiment, with values from tidy files.

Rows are methods, columns are quantities in settings, and blocks are stacked groups of rows (as the upper and lower half
of FedLESAM's Table 2). Each entry is a mean ± sample standard deviation over seeds. An entry that has not been run, or
has diverged, says so and is not ranked.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import pandas as pd

from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.convergence import diverged_seeds, incomplete_data, stopped_runs
from fedflat.analysis.published.numbers import PublishedNumber
from fedflat.analysis.tables.caption import caption
from fedflat.analysis.tables.fairness import FAIR, Fairness
from fedflat.analysis.tables.layout import Column, TableBlock, TableLayout
from fedflat.analysis.tables.quotations import EntrySource, Quotations, own_cells, source
from fedflat.analysis.tables.values import (
    Value,
    Values,
    compared,
    mean_over,
    runs_over,
    stopped_without_value,
    values_of,
)
from fedflat.analysis.verdicts.equivalence import Noise
from fedflat.analysis.verdicts.orders import OrderOfMethods
from fedflat.analysis.verdicts.verdict import Missing, Verdict
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.metrics.quantity import Better


@dataclass(frozen=True)
class Entry:
    """One entry of a table; `place` is 1 for the best of its column and block, 2 for the second best, else 0.

    `missing`: why there is no mean; unused if there is one. `by_seed`: the seeds and their values. `incomplete`:
    whether images of the published data set were missing when one of the runs was trained.
    """

    mean: float | None = None
    std: float | None = None
    seeds: int = 0
    note: str = ""
    place: Literal[0, 1, 2] = 0
    missing: Missing = "not run"
    by_seed: tuple[tuple[int, float], ...] = ()
    incomplete: bool = False


@dataclass(frozen=True)
class PublishedEntry:
    """The published counterpart of an entry: the number, if there is one, and the verdict on the entry.

    `fairness`: whether the runs are as the paper states; others are not judged.
    """

    number: PublishedNumber | None
    verdict: Verdict
    fairness: Fairness = FAIR


@dataclass(frozen=True)
class ColumnSummary:
    """A column of a block compared with the published one: the noise of its gaps, and the order of its methods.

    `quoted_noise`: that of quoted numbers, whose runs are of another paper's experiment.
    """

    noise: Noise | None = None
    quoted_noise: Noise | None = None
    order: OrderOfMethods | None = None


@dataclass(frozen=True)
class Table:
    """A filled table: `entries[block][row][column]`, in the layout's order, also of rows that a block does not show.

    `captioned` gives the caption, when it is asked for.

    If a paper published the table, `published` has the same shape, `summaries[block][column]` compare whole columns,
    and `foot` has one paragraph per item. `experiment` is the name of the table's experiment; `quotations` are the
    entries with runs of another experiment.
    """

    name: str
    layout: TableLayout
    rows: tuple[str, ...]
    entries: tuple[tuple[tuple[Entry, ...], ...], ...]
    captioned: Callable[[], Caption] = field(compare=False, repr=False)
    published: tuple[tuple[tuple[PublishedEntry, ...], ...], ...] = ()
    summaries: tuple[tuple[ColumnSummary, ...], ...] = ()
    foot: tuple[str, ...] = ()
    experiment: str = ""
    quotations: Quotations | None = None

    @cached_property
    def caption(self) -> Caption:
        """What is shown, and by which protocol, from `captioned`: values alone do not need it."""
        return self.captioned()


def inputs(
    layout: TableLayout, experiment: Experiment, paths: ResultPaths, quotations: Quotations | None = None
) -> list[Path]:
    """The tidy files that a table reads. Metrics are always among them: they say which runs diverged."""
    read = {experiment.name: own_cells(layout, experiment, quotations)}
    if quotations is not None:
        read[quotations.experiment.name] = quotations.all_cells
    return [
        paths.tidy(name, cell.path, file) for file in _files(layout) for name, cells in read.items() for cell in cells
    ]


def _files(layout: TableLayout) -> list[str]:
    """The kinds of tidy files that a table reads."""
    return list(dict.fromkeys(["metrics", *(column.file for column in layout.columns)]))


def _gathered(file: str, layout: TableLayout, tidy: Tidy, quotations: Quotations | None) -> pd.DataFrame:
    """The rows of one kind of tidy file for all shown cells; labels of parts differ between both experiments."""
    own = tidy.gather(file, own_cells(layout, tidy.experiment, quotations))
    if quotations is None:
        return own
    quoted = quotations.tidy.gather(file, quotations.all_cells)
    return pd.concat([frame for frame in (own, quoted) if not frame.empty] or [own], ignore_index=True)


def fill(name: str, layout: TableLayout, tidy: Tidy, quotations: Quotations | None = None) -> Table:
    """The table with the values of the tidy files; `quotations`: entries with runs of another experiment."""
    frames = {file: _gathered(file, layout, tidy, quotations) for file in _files(layout)}
    metrics = frames["metrics"]
    counts = diverged_seeds(metrics).set_index(IDS).astype(int)
    runs = {key: (seeds, diverged) for key, seeds, diverged in counts.itertuples(name=None)}
    incomplete = incomplete_data(metrics)
    stops, finals = stopped_runs(metrics), layout.final_values(tidy.experiment)
    shared: dict[tuple[object, ...], Values] = {}
    blocks = []
    for b in range(len(layout.blocks)):
        columns = []
        for c, column in enumerate(layout.columns):
            frame = frames[column.file]
            values = (column.metric, column.file, column.final, column.target, column.smoothed, column.direction)
            if values not in shared:
                shared[values] = values_of(column, finals, frame)
            sources = {m: source(layout, (b, m, c), tidy.experiment, quotations) for m in layout.methods}
            entries = _column(layout.blocks[b], column, sources, runs, stops, shared[values], frame)
            columns.append(_marked(entries, [sources[m] for m in layout.methods], incomplete))
        blocks.append(tuple(zip(*columns, strict=True)))
    names = method_titles(tidy.experiment)
    rows = tuple(names[method] for method in layout.methods)
    seeds = {entry.seeds for block in blocks for row in block for entry in row if entry.mean is not None}
    words = partial(caption, layout, finals, frames, tidy, sorted(seeds), quotations)
    return Table(name, layout, rows, tuple(blocks), words, experiment=tidy.experiment.name, quotations=quotations)


def _column(
    block: TableBlock,
    column: Column,
    sources: Mapping[str, EntrySource],
    runs: Mapping[tuple[str, ...], tuple[int, int]],
    stops: Mapping[tuple[str, ...], Mapping[int, int]],
    values: Values,
    frame: pd.DataFrame,
) -> list[Entry]:
    """The entries of a column in a block. `sources`: by method, where its values come from; `runs`: by cell, how many
    seeds ran, and how many diverged; `stops`: by cell, the seeds that stopped early, and their last
    rounds."""
    with_rows = set(frame[IDS].itertuples(index=False, name=None))
    cells = {method: [cell.ids for cell in of_entry.cells] for method, of_entry in sources.items()}
    of_method = {method: mean_over([values.get(key, []) for key in keys]) for method, keys in cells.items()}
    entries = []
    for method, own in compared(column, of_method).items():
        exists = block.shows(method) and sources[method].exists
        if not exists or (column.gain_over and method not in column.gain_over):
            entries.append(Entry(note="–"))
            continue
        seeds, diverged, ran = runs_over([runs.get(key, (0, 0)) for key in cells[method]])
        stopped = stopped_without_value(own, [stops.get(key, {}) for key in cells[method]])
        if 0 < ran < len(cells[method]):
            entries.append(Entry(note=f"{ran} of {len(cells[method])} settings"))
        elif stopped and not diverged:  # a mean over the other seeds would be one over slow runs
            entries.append(Entry(seeds=seeds, note=stopped, missing="not analysed"))
        else:
            analysed = all(key in with_rows for key in cells[method])
            wanted = sources[method].seeds
            entries.append(_entry((seeds, diverged), own, wanted, column.decimals, analysed=analysed))
    return _ranked(entries, column.direction)


def _marked(
    entries: Sequence[Entry], sources: Sequence[EntrySource], incomplete: Collection[tuple[str, ...]]
) -> list[Entry]:
    """The entries of a column; those with a cell whose data were incomplete say so."""
    return [
        replace(entry, incomplete=any(tuple(cell.ids) in incomplete for cell in of_entry.cells))
        for entry, of_entry in zip(entries, sources, strict=True)
    ]


def _entry(
    runs: tuple[int, int], values: Sequence[Value], wanted: int, decimals: int, *, analysed: bool = False
) -> Entry:
    seeds, diverged = runs
    if seeds == 0:
        return Entry(note="not run")
    if diverged:
        return Entry(seeds=seeds, note=f"diverged ({diverged} of {seeds})", missing="diverged")
    known = [value for value in values if math.isfinite(value.number)]
    if not known:
        return Entry(seeds=seeds, note="no value" if analysed else "not analysed", missing="not analysed")
    if incomparable := sum(not value.comparable for value in known):
        return Entry(
            seeds=len(known), note=f"reference: {len(known) - incomparable} of {len(known)} seeds", missing="censored"
        )
    if missed := [value.number for value in known if not value.reached]:
        reached = f" ({len(known) - len(missed)} of {len(known)} seeds)" if len(missed) < len(known) else ""
        note = f"{math.fsum(missed) / len(missed):.{decimals}f}+{reached}"
        return Entry(seeds=len(known), note=note, missing="censored")
    finite = [value.number for value in known]
    mean = math.fsum(finite) / len(finite)
    spread = math.fsum((value - mean) ** 2 for value in finite)
    std = math.sqrt(spread / (len(finite) - 1)) if len(finite) > 1 else None
    note = "" if len(finite) >= wanted else f"{len(finite)} of {wanted} seeds"
    by_seed = tuple(sorted((value.seed, value.number) for value in known))
    return Entry(mean, std, len(finite), note, by_seed=by_seed)


def _ranked(entries: Sequence[Entry], better: Better) -> list[Entry]:
    """The entries with their places, by unrounded means; means that differ only by rounding errors share a place."""
    if better == "none":
        return list(entries)
    distinct: list[float] = []
    for mean in sorted((e.mean for e in entries if e.mean is not None), reverse=better == "higher"):
        if not distinct or not _equal(mean, distinct[-1]):
            distinct.append(mean)
    best, second, *_ = *distinct, math.nan, math.nan

    def place(mean: float | None) -> Literal[0, 1, 2]:
        if mean is None:
            return 0
        return 1 if _equal(mean, best) else 2 if _equal(mean, second) else 0

    return [replace(entry, place=place(entry.mean)) for entry in entries]


def _equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=0)
