"""Fill a table: a YAML layout over an experiment, with values from tidy files.

Rows are methods, columns are quantities in settings, and blocks are stacked groups of rows (as the upper and lower half
of FedLESAM's Table 2). Each entry is a mean ± sample standard deviation over seeds. An entry that has not been run, or
has diverged, says so and is not ranked.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd

from analysis.layouts.captions import computed_by_other_code, definition, less_exact, other_training_settings
from analysis.layouts.tidy import Tidy
from analysis.layouts.titles import method_titles
from analysis.measures.convergence import Better, FinalValue, diverged_seeds
from analysis.published.numbers import PublishedNumber
from analysis.published.verdicts import Missing, RankCorrelation, Verdict
from analysis.tables.layout import Block, Column, TableLayout
from analysis.tables.quantities import quantity
from analysis.tables.values import Value, Values, compared, mean_over, rule_of, runs_over, values_of
from bench.experiments.address import IDS, RUN_IDS, CellAddress
from bench.experiments.experiment import Experiment
from bench.experiments.results import RUN_FILES, ResultPaths
from bench.experiments.scale import IN_WORDS


@dataclass(frozen=True)
class Entry:
    """One entry of a table; `place` is 1 for the best of its column and block, 2 for the second best, else 0.

    `missing`: why there is no mean; unused if there is one.
    """

    mean: float | None = None
    std: float | None = None
    seeds: int = 0
    note: str = ""
    place: Literal[0, 1, 2] = 0
    missing: Missing = "not run"


@dataclass(frozen=True)
class PublishedEntry:
    """The published counterpart of an entry: the number, if there is one, and the verdict on the entry.

    `fair`: whether the runs have the paper's settings; others are not judged.
    """

    number: PublishedNumber | None
    verdict: Verdict
    fair: bool = True


@dataclass(frozen=True)
class Table:
    """A filled table: `entries[block][row][column]`, in the layout's order.

    If a paper published the table, `published` has the same shape, `taus[block][column]` are rank correlations with the
    published numbers, and `foot` sums up the verdicts. `experiment` is the name of the table's experiment.
    """

    name: str
    layout: TableLayout
    rows: tuple[str, ...]
    entries: tuple[tuple[tuple[Entry, ...], ...], ...]
    caption: str
    published: tuple[tuple[tuple[PublishedEntry, ...], ...], ...] = ()
    taus: tuple[tuple[RankCorrelation | None, ...], ...] = ()
    foot: str = ""
    experiment: str = ""


def inputs(layout: TableLayout, experiment: Experiment, paths: ResultPaths) -> list[Path]:
    """The tidy files that a table reads. Metrics are always among them: they say which runs diverged."""
    files = dict.fromkeys(["metrics", *(column.file for column in layout.supported)])
    return [paths.tidy(experiment.name, cell.path, file) for file in files for cell in layout.cells(experiment)]


def fill(name: str, layout: TableLayout, tidy: Tidy) -> Table:
    """The table with the values of the tidy files."""
    cells = layout.cells(tidy.experiment)
    files = dict.fromkeys(["metrics", *(column.file for column in layout.supported)])
    frames = {file: tidy.gather(file, cells) for file in files}
    metrics = frames["metrics"]
    counts = diverged_seeds(metrics).set_index(IDS).astype(int)
    runs = {key: (seeds, diverged) for key, seeds, diverged in counts.itertuples(name=None)}
    finals = layout.final_values(tidy.experiment)
    shared: dict[tuple[object, ...], Values] = {}
    blocks = []
    for block in layout.blocks:
        columns = []
        for column in layout.columns:
            if column.unsupported is not None:
                unsupported = Entry(note=column.unsupported, missing="not supported")
                columns.append([unsupported] * len(layout.methods))
                continue
            frame = frames[column.file]
            values = (column.metric, column.file, column.final, column.target, column.smoothed, column.direction)
            if values not in shared:
                shared[values] = values_of(column, finals, frame)
            columns.append(_column(layout, block, column, tidy.experiment, runs, shared[values], frame))
        blocks.append(tuple(zip(*columns, strict=True)))
    names = {label: row.title for label, row in layout.unsupported_rows.items()} | method_titles(tidy.experiment)
    rows = tuple(names[method] for method in layout.methods)
    by_title = {names[method]: final for method, final in finals.items()}
    caption = _caption(layout, by_title, frames, tidy, blocks)
    return Table(name, layout, rows, tuple(blocks), caption, experiment=tidy.experiment.name)


def _column(
    layout: TableLayout,
    block: Block,
    column: Column,
    experiment: Experiment,
    runs: Mapping[tuple[str, ...], tuple[int, int]],
    values: Values,
    frame: pd.DataFrame,
) -> list[Entry]:
    """The entries of a column in a block. `runs`: by cell, how many seeds ran, and how many diverged."""
    settings = layout.settings_of(block, column, experiment)
    wanted = min(len(experiment.resolved_parts[setting.dataset].grid.seeds) for setting in settings)
    with_rows = set(frame[IDS].itertuples(index=False, name=None))
    cells = {method: [CellAddress(setting, method).ids for setting in settings] for method in layout.methods}
    of_method = {method: mean_over([values.get(key, []) for key in keys]) for method, keys in cells.items()}
    entries = []
    for method, own in compared(column, of_method).items():
        why = layout.why_unsupported(method, column)
        if why is not None:
            entries.append(Entry(note=why, missing="not supported"))
            continue
        if not layout.has(block, method, column, experiment) or (column.gain_over and method not in column.gain_over):
            entries.append(Entry(note="–"))
            continue
        seeds, diverged, ran = runs_over([runs.get(key, (0, 0)) for key in cells[method]])
        if 0 < ran < len(settings):
            entries.append(Entry(note=f"{ran} of {len(settings)} settings"))
        else:
            analysed = all(key in with_rows for key in cells[method])
            entries.append(_entry((seeds, diverged), own, wanted, column.decimals, analysed=analysed))
    return _ranked(entries, column.direction)


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
    finite = sorted(value.number for value in known)
    mean = math.fsum(finite) / len(finite)
    spread = math.fsum((value - mean) ** 2 for value in finite)
    std = math.sqrt(spread / (len(finite) - 1)) if len(finite) > 1 else None
    note = "" if len(finite) >= wanted else f"{len(finite)} of {wanted} seeds"
    return Entry(mean, std, len(finite), note)


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


def _caption(
    layout: TableLayout,
    finals: Mapping[str, FinalValue],
    frames: Mapping[str, pd.DataFrame],
    tidy: Tidy,
    blocks: Sequence[Sequence[Sequence[Entry]]],
) -> str:
    """The layout's caption and the protocol: which value, how many seeds, what ± and the marks mean."""
    metrics, protocol = frames["metrics"], []
    sources, names = {column.file for column in layout.supported}, method_titles(tidy.experiment)
    if not metrics.empty:
        whole = metrics.groupby(RUN_IDS).agg(last=("round", "max"), bad=("diverged", "max"))
        last = sorted(whole.loc[whole["bad"] == 0, "last"].unique())
        rounds = f" (round {last[0]})" if len(last) == 1 else f" (rounds {last[0]} to {last[-1]})" if last else ""
        if any(_follows_protocol(column) for column in layout.supported):
            requested = "" if tidy.experiment.report is None else ", as requested instead of the table's own protocol"
            protocol.append(f"Values{requested}: {_reported_as(finals, rounds)}.")
        for final in dict.fromkeys(column.final for column in layout.supported if column.final is not None):
            of = [column.name for column in layout.supported if column.final == final]
            named = ", ".join(of) if len(of) < len(layout.supported) else "Values"
            protocol.append(f"{named}: {final.description}.")
        shown = {rule_of(column, final) for column in layout.supported for final in finals.values()}
        evaluated = int(metrics.groupby(RUN_IDS)["test_accuracy"].count().min())
        if any((final.n or 0) > evaluated for final in shown):
            protocol.append(f"Runs have as few as {evaluated} evaluations.")
        if any(file not in RUN_FILES and tidy.analyses[file].of_final_model for file in sources):
            protocol.append(f"Measured on the global model after the last round{rounds}.")
    if layout.supported:
        protocol += other_training_settings(tidy.experiment, layout.supported_methods)
    protocol += [*_definitions(layout, frames), *less_exact(frames), *computed_by_other_code(frames, tidy.analyses)]
    if any(quantity(column.metric).file == "convergence" for column in layout.supported):
        protocol.append(
            "N+: mean cost of the runs that did not reach the target; in brackets the seeds that did, if there are any."
        )
    if references := dict.fromkeys(column.relative_to for column in layout.supported if column.relative_to):
        shown_names = " and ".join(names[reference] for reference in references)
        protocol.append(f"Multiples of {shown_names}, seed by seed; shown only if that has a value in all seeds.")
    if gains := {method: other for column in layout.supported for method, other in column.gain_over.items()}:
        pairs = ", ".join(f"{names[method]} over {names[other]}" for method, other in gains.items())
        protocol.append(f"Gains, seed by seed: {pairs}.")
    counts = sorted({entry.seeds for block in blocks for row in block for entry in row if entry.mean is not None})
    if counts:
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        one = counts[-1] == 1
        protocol.append("One seed." if one else f"Mean ± sample standard deviation over {seeds} seeds.")
        if any(column.direction != "none" for column in layout.columns):
            within = "of a column within its block" if len(layout.blocks) > 1 else "of a column"
            protocol.append(f"Bold: best mean {within}; underlined: second best.")
    scale = IN_WORDS[tidy.experiment.scale] if layout.supported else ""
    return " ".join(part for part in [f"{layout.title}.", scale, layout.caption.strip(), *protocol] if part)


def _definitions(layout: TableLayout, frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """The definition of each quantity of an analysis; not of convergence, whose definitions depend on the target."""
    titles_by_definition: dict[str, list[str]] = {}
    for name, file in dict.fromkeys((column.metric, column.file) for column in layout.supported):
        shown = quantity(name)
        if shown.file not in (*RUN_FILES, "convergence"):
            text = definition(frames[file].loc[frames[file]["metric"] == name], file)
            which = "" if file == shown.file else f" ({file})"
            titles_by_definition.setdefault(text, []).append(f"{shown.title}{which}")
    for text, titles in titles_by_definition.items():
        if text:
            yield f"{titles[0][0].upper()}{', '.join(titles)[1:]}: {text}."


def _follows_protocol(column: Column) -> bool:
    """Whether a column shows the value of each run that the table's protocol reports."""
    shown = quantity(column.metric)
    return shown.file == "metrics" and column.final is None and shown.deviation_over is None


def _reported_as(finals: Mapping[str, FinalValue], rounds: str) -> str:
    """The reported value of most methods, and those of the other methods by name."""
    usual = Counter(finals.values()).most_common(1)[0][0]
    others = [f"{method}: {final.description}" for method, final in finals.items() if final != usual]
    return "; ".join([f"{usual.description}{rounds}", *others])
