"""The caption of a table: what is shown, and by which protocol."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd

from fedflat.analysis.layouts.captions import (
    Caption,
    computed_by_other_code,
    computed_in_bf16,
    definition,
    less_exact,
    other_training_settings,
    reported_as,
    smoke_scale,
    tuned_values,
)
from fedflat.analysis.layouts.quantities import quantity
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.analysis.tables.layout import TableLayout
from fedflat.analysis.tables.quotations import Quotations, own_cells
from fedflat.analysis.tables.values import rule_of
from fedflat.bench.experiments.address import RUN_IDS
from fedflat.bench.experiments.results import RUN_FILES


def caption(
    layout: TableLayout,
    finals: Mapping[str, FinalValue],
    frames: Mapping[str, pd.DataFrame],
    tidy: Tidy,
    counts: Sequence[int],
    quotations: Quotations | None = None,
) -> Caption:
    """The layout's caption; as notes the protocol: which value, how many seeds, what ± and the marks mean.

    `finals`: the reported value by method; `counts`: the numbers of seeds of the means, in order;
    `quotations`: the entries with runs of another experiment.
    """
    metrics, protocol = frames["metrics"], []
    sources, names = {column.file for column in layout.columns}, method_titles(tidy.experiment)
    if not metrics.empty:
        whole = metrics.groupby(RUN_IDS).agg(last=("round", "max"), bad=("diverged", "max"))
        last = sorted(whole.loc[whole["bad"] == 0, "last"].unique())
        rounds = f" (round {last[0]})" if len(last) == 1 else f" (rounds {last[0]} to {last[-1]})" if last else ""
        if any(column.follows_protocol for column in layout.columns):
            requested = "" if tidy.experiment.report is None else ", as requested instead of the table's own protocol"
            by_title = {names[method]: final for method, final in finals.items()}
            protocol.append(f"Values{requested}: {reported_as(by_title, rounds)}.")
        for final in dict.fromkeys(column.final for column in layout.columns if column.final is not None):
            protocol.append(f"{_columns_with(layout, final)}: {final.description}.")
        protocol += _evaluations(metrics, _shown_rules(layout, finals))
        if any(file not in RUN_FILES and tidy.analyses[file].of_final_model for file in sources):
            same = any(sentence.endswith(f"after the last round{rounds}.") for sentence in protocol)
            when = f"Measured on the global model after the last round{rounds}."
            protocol.append("Analyses: of the same model." if same else when)
    own = {cell.method for cell in own_cells(layout, tidy.experiment, quotations)}
    shown_methods = [method for method in layout.methods if method in own]
    protocol += other_training_settings(tidy.experiment, shown_methods)
    protocol += tuned_values(tidy.experiment, shown_methods)
    if quotations is not None:
        quoted = dict.fromkeys(cell.method for cell in quotations.all_cells)
        runs = f"runs for quoted numbers (experiment {quotations.experiment.name})"
        protocol += other_training_settings(quotations.experiment, list(quoted), runs)
    protocol += [
        *_definitions(layout, frames),
        *less_exact(frames, tidy.analyses),
        *computed_in_bf16(frames),
        *computed_by_other_code(frames, tidy.analyses, tidy.experiment),
    ]
    if any(quantity(column.metric).file == "convergence" for column in layout.columns):
        protocol.append(
            "N+, for example 8+ for 8 rounds: the target was not reached until then (mean over the runs that did not "
            "reach it); in brackets the seeds that did, if there are any."
        )
    if references := dict.fromkeys(column.relative_to for column in layout.columns if column.relative_to):
        shown_names = " and ".join(names[reference] for reference in references)
        have = "have" if len(references) > 1 else "has"
        protocol.append(
            f"Multiples of {shown_names}, seed by seed; shown only if {shown_names} {have} a value in all seeds."
        )
    if gains := {method: other for column in layout.columns for method, other in column.gain_over.items()}:
        pairs = ", ".join(f"{names[method]} over {names[other]}" for method, other in gains.items())
        protocol.append(f"Gains, seed by seed: {pairs}.")
    if counts:
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        one = counts[-1] == 1
        protocol.append("One seed." if one else f"Mean ± sample standard deviation over {seeds} seeds.")
        if any(column.direction != "none" for column in layout.columns):
            protocol += _marks(layout, quotations)
    shortens = any((final.n or 1) > 1 for final in _shown_rules(layout, finals))
    scale = smoke_scale(tidy.experiment, layout.cells(tidy.experiment), shortens=shortens)
    return Caption.of(layout.title, layout.caption, protocol, smoke=scale)


def _marks(layout: TableLayout, quotations: Quotations | None) -> Iterator[str]:
    """What bold and underlined numbers are."""
    within = "of a column within its block" if len(layout.blocks) > 1 else "of a column"
    yield f"Bold: best mean {within}; underlined: second best."
    if quotations is not None and quotations.cells:
        yield "Bold and underlined compare runs of both papers' settings."


def _definitions(layout: TableLayout, frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """The definition of each quantity of an analysis; not of convergence, whose definitions depend on the target."""
    titles_by_definition: dict[str, list[str]] = {}
    headers = {(column.metric, column.file): column.header for column in layout.columns}
    explained = re.findall(r"[^\s:;,]+", layout.caption)
    for (name, file), header in headers.items():
        shown = quantity(name)
        if shown.file not in (*RUN_FILES, "convergence"):
            text = definition(frames[file].loc[frames[file]["metric"] == name], file)
            which = "" if file == shown.file else f" (columns {header})"
            title = header if header in explained and header in shown.title else shown.with_unit
            titles_by_definition.setdefault(text, []).append(f"{title}{which}")
    clauses = Counter(clause for text in titles_by_definition for clause in text.split(", "))
    shared = [clause for clause, count in clauses.items() if count > 1 and len(clause.split()) >= _CLAUSE]
    for text, titles in titles_by_definition.items():
        if own := ", ".join(clause for clause in text.split(", ") if clause not in shared):
            yield _definition(titles, own)
    for clause in shared:
        having = [titles for text, titles in titles_by_definition.items() if clause in text.split(", ")]
        yield _definition(list(itertools.chain(*having)), clause)


def _definition(titles: Sequence[str], text: str) -> str:
    named = "; ".join(titles)
    return f"{named[0].upper() if named[0].isascii() else named[0]}{named[1:]}: {text}."


_CLAUSE = 4
"""Clauses of at least as many words are said once for all quantities that share them."""


def _shown_rules(layout: TableLayout, finals: Mapping[str, FinalValue]) -> set[FinalValue]:
    """The rules of all values that the table shows, except those of analyses."""
    of_runs = [column for column in layout.columns if column.file == "metrics"]
    return {rule_of(column, final) for column in of_runs for final in finals.values()}


def _columns_with(layout: TableLayout, final: FinalValue) -> str:
    """The columns with this reported value: Values, if all; the common end of their headers, if only they have it."""
    having = [column for column in layout.columns if column.final == final]
    others = [column for column in layout.columns if column.final != final]
    if not others:
        return "Values"
    ends = {column.name.rpartition(", ")[2] for column in having}
    if len(having) > 1 and len(ends) == 1 and not ends & {column.name.rpartition(", ")[2] for column in others}:
        return f"Columns {ends.pop()}"
    return "; ".join(column.name for column in having)


def _evaluations(metrics: pd.DataFrame, shown: Iterable[FinalValue]) -> Iterator[str]:
    """How many evaluations the runs have, if that decides the shown values."""
    evaluated = metrics.groupby(RUN_IDS)["test_accuracy"].count()
    fewest, most = int(evaluated.min()), int(evaluated.max())
    if any((final.n or 0) > fewest for final in shown):
        yield f"Runs have as few as {fewest} evaluations."
    elif fewest < most and any(final.rule == "best" for final in shown):
        yield f"Runs have {fewest} to {most} evaluations."
