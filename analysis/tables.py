"""Tables: a YAML layout over an experiment, filled from tidy files.

Rows are methods, columns are quantities in settings, blocks are stacked parts of the table (as the upper and
lower half of FedLESAM's Table 2). Each entry is a mean ± sample standard deviation over seeds; what has not
been run, or has diverged, says so and is never ranked.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import pandas as pd
from pydantic import Field, field_validator, model_validator

from analysis.captions import definition, less_exact, made_by_other_code, trained_otherwise
from analysis.columns import IDS, RUN, RUN_FILES
from analysis.convergence import FinalValue, diverged_seeds, final_values, reported
from analysis.layout import Layout, Selection, read_layout
from analysis.published import PublishedNumber
from analysis.quantities import Better, quantity
from analysis.tidy import CellKey, Setting, Tidy, relative_path, titles
from analysis.verdicts import Missing, RankCorrelation, Verdict
from bench.errors import UserError, unknown
from bench.experiments import Experiment
from bench.frozen import Frozen
from bench.scale import IN_WORDS


class Column(Frozen):
    """One column: a quantity in a (part of a) setting."""

    header: str
    group: str = Field(default="", description="header over neighbouring columns of the same group")
    metric: str
    analysis: str | None = Field(
        default=None, description="which of the experiment's analyses of the metric's kind; null: the one of its name"
    )
    better: Better | None = Field(default=None, description="null: the quantity's own direction")
    target: float | str | None = Field(
        default=None, description="for what it takes to reach a target: accuracy in percent, or whose final accuracy"
    )
    smoothed: bool = Field(default=False, description="whether a mean of evaluations has to reach the target")
    relative_to: str | None = Field(
        default=None, description="a method of the table: values are multiples of its own, seed by seed"
    )
    decimals: int = Field(default=2, ge=0, le=12)
    select: Selection = Selection()
    published: dict[str, str | int | None] = Field(
        default={}, description="keys of the published numbers that differ from the cell's own; null: any"
    )
    unsupported: str | None = Field(
        default=None, description="why nothing can be reproduced: the published numbers alone are shown"
    )

    @field_validator("metric")
    @classmethod
    def _known(cls, name: str) -> str:
        quantity(name)
        return name

    @model_validator(mode="after")
    def _target_where_needed(self) -> "Column":
        needed = quantity(self.metric).file == "convergence"
        if needed != (self.target is not None) or (self.smoothed and not needed):
            needs = "a target" if needed else "no target, and nothing smoothed"
            raise UserError(f"column {self.name}: {self.metric} takes {needs}")
        return self

    @property
    def file(self) -> str:
        """The kind of tidy file that has the values."""
        return self.analysis or quantity(self.metric).file

    @property
    def direction(self) -> Better:
        """Which direction is better."""
        return self.better or quantity(self.metric).better

    @property
    def name(self) -> str:
        """Group and header, for one-line headings."""
        return f"{self.group} {self.header}".strip()


class Block(Frozen):
    """A stacked part of the table, with its own ranking."""

    header: str = ""
    select: Selection = Selection()


class TableLayout(Layout):
    """A table: rows (methods) × columns, in one or more blocks."""

    published: str | None = Field(default=None, description="the paper's table whose numbers stand beside: its number")
    rows: dict[str, dict[str, str | int | None]] = Field(
        default={}, description="by label, keys of the published numbers that differ from the label's own"
    )
    final: FinalValue | None = Field(
        default=None, description="null: the last round; for released variants what their code reports"
    )
    columns: tuple[Column, ...] = Field(min_length=1)
    blocks: tuple[Block, ...] = Field(default=(Block(),), min_length=1)

    @model_validator(mode="after")
    def _references_shown(self) -> "TableLayout":
        for column in self.columns:
            if column.relative_to is not None and column.relative_to not in self.methods:
                raise unknown("method of the table", column.relative_to, self.methods)
        return self

    def final_values(self, experiment: Experiment) -> dict[str, FinalValue]:
        """Which value of a run is reported, by method."""
        return {method: self.final or reported(experiment.methods[method].release(method)) for method in self.methods}

    @property
    def supported(self) -> tuple[Column, ...]:
        """The columns that can be reproduced."""
        return tuple(column for column in self.columns if column.unsupported is None)

    def setting(self, block: Block, column: Column, experiment: Experiment) -> Setting:
        """The setting of a column within a block."""
        return block.select.narrowed(column.select).setting(experiment)

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings of all columns in all blocks, each once."""
        pairs = itertools.product(self.blocks, self.supported)
        return tuple(dict.fromkeys(self.setting(block, column, experiment) for block, column in pairs))


@dataclass(frozen=True)
class Entry:
    """One cell of a table; `place` is 1 for the best of its column and block, 2 for the second, else 0.

    `missing`: why there is no mean, if there is none.
    """

    mean: float | None = None
    std: float | None = None
    seeds: int = 0
    note: str = ""
    place: Literal[0, 1, 2] = 0
    missing: Missing = "not run"


@dataclass(frozen=True)
class Beside:
    """What stands beside an entry: the published number, if there is one, and what the entry says of it."""

    number: PublishedNumber | None
    verdict: Verdict


@dataclass(frozen=True)
class Table:
    """A filled table: `entries[block][row][column]`, in the layout's order.

    Of a table that is published, `beside` has the same shape, `taus[block][column]` are rank correlations of both, and
    `foot` sums up.
    """

    name: str
    layout: TableLayout
    rows: tuple[str, ...]
    entries: tuple[tuple[tuple[Entry, ...], ...], ...]
    caption: str
    beside: tuple[tuple[tuple[Beside, ...], ...], ...] = ()
    taus: tuple[tuple[RankCorrelation | None, ...], ...] = ()
    foot: str = ""


def load_table(experiment_name: str, name: str) -> TableLayout:
    """A table's layout, validated; a `UserError` says what is wrong with it."""
    file, data = read_layout(experiment_name, "tables", name)
    return TableLayout.parse(data, where=str(file))


def inputs(layout: TableLayout, experiment: Experiment) -> list[str]:
    """The tidy files a table reads, relative to `results/`. Metrics always: they tell which runs diverged."""
    files = dict.fromkeys(["metrics", *(column.file for column in layout.supported)])
    return [relative_path(experiment.name, file, cell) for file in files for cell in layout.cells(experiment)]


class Value(NamedTuple):
    """A run's value; of a target that is not `reached` what was spent on it, which is less than it takes.

    A multiple of another run's value that does not exist, or is zero, is not `comparable`.
    """

    seed: int
    number: float
    reached: bool = True
    comparable: bool = True


Values = Mapping[tuple[str, ...], Sequence[Value]]
"""By cell, one value per seed."""


def fill(name: str, layout: TableLayout, tidy: Tidy) -> Table:
    """The table with everything the tidy files say."""
    cells = layout.cells(tidy.experiment)
    files = dict.fromkeys(["metrics", *(column.file for column in layout.supported)])
    frames = {file: tidy.gather(file, cells) for file in files}
    metrics = frames["metrics"]
    counts = diverged_seeds(metrics).set_index(IDS).astype(int)
    runs = dict(zip(counts.index, map(tuple, counts.to_numpy().tolist()), strict=True))
    finals = layout.final_values(tidy.experiment)
    values = {id(column): _values(column, finals, frames[column.file]) for column in layout.supported}
    blocks = []
    for block in layout.blocks:
        columns = []
        for column in layout.columns:
            if column.unsupported is not None:
                columns.append([Entry(note=column.unsupported)] * len(layout.methods))
                continue
            of_cell = values[id(column)]
            setting = layout.setting(block, column, tidy.experiment)
            wanted = len(tidy.experiment.grids[setting.dataset].grid.seeds)
            keys = [CellKey(setting, method).ids for method in layout.methods]
            there = set(frames[column.file][IDS].itertuples(index=False, name=None))
            entries = [
                _entry(runs.get(key, (0, 0)), of_cell.get(key, []), wanted, column.decimals, analysed=key in there)
                for key in keys
            ]
            columns.append(_ranked(entries, column.direction))
        blocks.append(tuple(zip(*columns, strict=True)))
    names = titles(tidy.experiment)
    rows = tuple(names[method] for method in layout.methods)
    by_title = {names[method]: final for method, final in finals.items()}
    return Table(name, layout, rows, tuple(blocks), _caption(layout, by_title, frames, tidy, blocks))


def _values(column: Column, finals: Mapping[str, FinalValue], frame: pd.DataFrame) -> Values:
    """The column's quantity, from the file that has it."""
    file = quantity(column.metric).file
    if file == "metrics":
        by_method = [
            final_values(rows, column.metric, finals[str(method)], column.direction)
            for method, rows in frame.groupby("method", sort=False)
        ]
        frame = pd.concat(by_method) if by_method else pd.DataFrame(columns=[*RUN, "value"])
    else:
        frame = frame[frame["metric"] == column.metric]
    if file == "convergence":
        own = frame["target_of"] == column.target
        stated = frame["target_of"].isna() & (frame["target"] == column.target)
        frame = frame[(own if isinstance(column.target, str) else stated) & (frame["smoothed"] == column.smoothed)]
    reached = frame["reached"] == 1 if "reached" in frame else pd.Series(data=True, index=frame.index)
    rows = frame[[*RUN, "value"]].assign(reached=reached).itertuples(index=False, name=None)
    values: dict[tuple[str, ...], list[Value]] = {}
    for *key, seed, number, there in rows:
        values.setdefault(tuple(map(str, key)), []).append(Value(int(seed), float(number), bool(there)))
    return values if column.relative_to is None else _multiples(values, column.relative_to)


def _multiples(values: Values, reference: str) -> Values:
    """Each value by that of the reference's run of the same setting and seed, if that reached its target and spent
    anything."""
    multiples = {}
    for key, own in values.items():
        runs = values.get((*key[:-1], reference), [])
        units = {run.seed: run.number for run in runs if run.reached and run.number != 0}
        multiples[key] = [v._replace(number=v.number / units.get(v.seed, 1), comparable=v.seed in units) for v in own]
    return multiples


def _entry(
    runs: tuple[int, ...], values: Sequence[Value], wanted: int, decimals: int, *, analysed: bool = False
) -> Entry:
    seeds, diverged = runs
    if seeds == 0:
        return Entry(note="not run")
    if diverged:
        return Entry(seeds=seeds, note=f"diverged ({diverged} of {seeds})", missing="diverged")
    known = [value for value in values if math.isfinite(value.number)]
    if not known:
        return Entry(note="no value" if analysed else "not analysed")
    if incomparable := sum(not value.comparable for value in known):
        return Entry(
            seeds=len(known), note=f"reference: {len(known) - incomparable} of {len(known)} seeds", missing="censored"
        )
    if missed := [value.number for value in known if not value.reached]:
        some = f" ({len(known) - len(missed)} of {len(known)} seeds)" if len(missed) < len(known) else ""
        note = f"{math.fsum(missed) / len(missed):.{decimals}f}+{some}"
        return Entry(seeds=len(known), note=note, missing="censored")
    finite = sorted(value.number for value in known)
    mean = math.fsum(finite) / len(finite)
    spread = math.fsum((value - mean) ** 2 for value in finite)
    std = math.sqrt(spread / (len(finite) - 1)) if len(finite) > 1 else None
    note = "" if len(finite) >= wanted else f"{len(finite)} of {wanted} seeds"
    return Entry(mean, std, len(finite), note)


def _ranked(entries: Sequence[Entry], better: Better) -> list[Entry]:
    """Places by unrounded means; equal means share a place (up to rounding of the sum over seeds)."""
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


def _caption(
    layout: TableLayout,
    finals: Mapping[str, FinalValue],
    frames: Mapping[str, pd.DataFrame],
    tidy: Tidy,
    blocks: Sequence[Sequence[Sequence[Entry]]],
) -> str:
    """The layout's caption and the protocol: which value, how many seeds, what ± and the marks mean."""
    metrics, protocol = frames["metrics"], []
    sources, names = {column.file for column in layout.supported}, titles(tidy.experiment)
    if not metrics.empty:
        whole = metrics.groupby(RUN).agg(last=("round", "max"), bad=("diverged", "max"))
        last = sorted(whole.loc[whole["bad"] == 0, "last"].unique())
        rounds = f" (round {last[0]})" if len(last) == 1 else f" (rounds {last[0]} to {last[-1]})" if last else ""
        if "metrics" in sources:
            protocol.append(f"Values: {_reported_as(finals, rounds)}.")
        if any(file not in RUN_FILES and tidy.analyses[file].of_final_model for file in sources):
            protocol.append(f"Measured on the global model after the last round{rounds}.")
    protocol += trained_otherwise(tidy.experiment, layout.methods)
    protocol += [*_definitions(layout, frames), *less_exact(frames), *made_by_other_code(frames, tidy.analyses)]
    if any(quantity(column.metric).file == "convergence" for column in layout.supported):
        protocol.append(
            "N+: what runs spent that did not reach the target; in brackets how many seeds did, if some did."
        )
    if references := dict.fromkeys(column.relative_to for column in layout.supported if column.relative_to):
        shown_names = " and ".join(names[reference] for reference in references)
        protocol.append(f"Multiples: of {shown_names}, seed by seed; none is shown unless it has a value in all seeds.")
    counts = sorted({entry.seeds for block in blocks for row in block for entry in row if entry.mean is not None})
    if counts:
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        spread = " ± sample standard deviation" if counts[-1] > 1 else ""
        protocol.append(f"Mean{spread} over {seeds} seed{'s' if counts[-1] > 1 else ''}.")
        if any(column.direction != "none" for column in layout.columns):
            within = "of a column within its block" if len(layout.blocks) > 1 else "of a column"
            protocol.append(f"Bold: best mean {within}; underlined: second best.")
    scale = IN_WORDS[tidy.experiment.scale]
    return " ".join(part for part in [f"{layout.title}.", scale, layout.caption.strip(), *protocol] if part)


def _definitions(layout: TableLayout, frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """What was computed, for the analyses' quantities. Those of convergence depend on the column's target."""
    titles_by_definition: dict[str, list[str]] = {}
    for name, file in dict.fromkeys((column.metric, column.file) for column in layout.supported):
        shown = quantity(name)
        if shown.file not in (*RUN_FILES, "convergence"):
            told = definition(frames[file].loc[frames[file]["metric"] == name], file)
            which = "" if file == shown.file else f" ({file})"
            titles_by_definition.setdefault(told, []).append(f"{shown.title}{which}")
    for told, of in titles_by_definition.items():
        if told:
            yield f"{of[0][0].upper()}{', '.join(of)[1:]}: {told}."


def _reported_as(finals: Mapping[str, FinalValue], rounds: str) -> str:
    """The rule of most methods, and the exceptions by name."""
    usual = Counter(finals.values()).most_common(1)[0][0]
    others = [f"{method}: {final.description}" for method, final in finals.items() if final != usual]
    return "; ".join([f"{usual.description}{rounds}", *others])
