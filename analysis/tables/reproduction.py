"""Add the published numbers to a filled table: for each entry the number that the paper prints, and a verdict."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from fedflat.analysis.published.numbers import PublishedNumber, find, fitting, published
from fedflat.analysis.tables.counterparts import Place
from fedflat.analysis.tables.fairness import FAIR, INCOMPLETE, Fairness, fairness, has_reading
from fedflat.analysis.tables.foot import foot
from fedflat.analysis.tables.layout import Column, TableBlock, TableLayout
from fedflat.analysis.tables.published_keys import keys_of, of_entry
from fedflat.analysis.tables.quotations import source
from fedflat.analysis.tables.table import ColumnSummary, Entry, PublishedEntry, Table
from fedflat.analysis.verdicts.equivalence import Noise, pooled, pooled_deviations
from fedflat.analysis.verdicts.margins import Margin, Repetitions, rules
from fedflat.analysis.verdicts.orders import OrderOfMethods, order
from fedflat.analysis.verdicts.verdict import Verdict, verdict
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, own_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError


class Compared(NamedTuple):
    """An entry of a column.

    `judge`: the paper whose transcript judges the runs. `fair`: whether they are as it states.
    """

    method: str
    entry: Entry
    number: PublishedNumber | None
    fair: Fairness
    judge: str


def with_published(table: Table, experiment: Experiment, paper: str) -> Table:
    """The table with the numbers of the paper's table `layout.published`, verdicts, and comparisons of whole columns.

    Only runs with the settings that the paper states are judged. A `UserError` if several published numbers fit one
    entry.
    """
    numbers, quoted = published(paper), table.quotations
    papers_own = {name: own_experiment(name) for name in {paper, *([] if quoted is None else [quoted.paper])}}
    layout = _with_true_readings(table.layout, experiment, papers_own[paper])
    of_table = numbers[numbers["table"] == layout.published]
    finals = layout.final_values(experiment)

    def compared(entry: Entry, place: Place) -> Compared:
        b, method, c = place
        column = layout.columns[c]
        number = _number(numbers, of_table, layout, experiment, layout.blocks[b], method, column)
        judge = quoted.paper if quoted is not None and place in quoted.cells else paper
        fair = FAIR
        if entry.mean is not None and entry.incomplete:
            fair = INCOMPLETE
        elif entry.mean is not None:
            runs = source(layout, place, experiment, quoted)
            fair = fairness(judge, runs.cells, runs.experiment, papers_own[judge], column, finals[method])
        return Compared(method, entry, number, fair, judge)

    entries, summaries = [], []
    for b, rows in enumerate(table.entries):
        columns = [
            _judged(
                column,
                [compared(rows[m][c], (b, method, c)) for m, method in enumerate(layout.methods)],
                paper,
            )
            for c, column in enumerate(layout.columns)
        ]
        entries.append(tuple(zip(*(of_column for of_column, _ in columns), strict=True)))
        summaries.append(_with_orders_once(layout.columns, [summary for _, summary in columns]))
    judged = replace(table, layout=layout, published=tuple(entries), summaries=tuple(summaries))
    return replace(judged, foot=foot(judged, experiment, paper))


def _with_true_readings(layout: TableLayout, experiment: Experiment, papers_own: Experiment) -> TableLayout:
    """The layout without readings that none of their runs has, because a user has set other values of their keys."""

    def runs(column: Column) -> Iterator[tuple[RunConfig, RunConfig]]:
        settings = {setting for block in layout.blocks for setting in layout.settings_of(block, column, experiment)}
        for cell in itertools.starmap(CellAddress, itertools.product(settings, layout.methods)):
            if experiment.has_cell(cell) and papers_own.has_cell(cell):
                yield experiment.cell(cell.path).runs[0], papers_own.cell(cell.path).runs[0]

    if experiment.scale != "paper":  # stand-ins, of which nothing is judged
        return layout
    columns = (
        column if has_reading(runs(column), column) else column.model_copy(update={"reading": None})
        for column in layout.columns
    )
    return layout.model_copy(update={"columns": tuple(columns)})


def _judged(column: Column, rows: Sequence[Compared], paper: str) -> tuple[list[PublishedEntry], ColumnSummary]:
    """The published entries of a column of a block, with verdicts, and the comparison of the column."""
    margin = rules().margin(column.metric, column.form)
    noises = {
        judge: _noise(column, [one for one in rows if one.judge == judge], margin, rules().repetitions(judge))
        for judge in dict.fromkeys(one.judge for one in rows)
    }
    entries = []
    for method, entry, number, fair, judge in rows:
        if number is not None and not fair.is_fair:
            judged = Verdict("not judged", fair.why)
        elif number is not None and entry.mean is not None and method == column.relative_to:
            judged = Verdict("not judged", "the reference of multiples")
        else:
            values = entry.missing if entry.mean is None else [value for _, value in entry.by_seed]
            judged = verdict(values, number, margin, noises[judge], column.unit)
        entries.append(PublishedEntry(number, judged, fair))
    of_quoted = next((noise for judge, noise in noises.items() if judge != paper), None)
    return entries, ColumnSummary(noises.get(paper), of_quoted, _order(rows))


def _with_orders_once(columns: Sequence[Column], summaries: Sequence[ColumnSummary]) -> tuple[ColumnSummary, ...]:
    """The summaries, with one order for a column and its multiples, which have the same: that with more pairs."""
    kept = list(summaries)
    for (m, multiples), (v, values) in itertools.product(enumerate(columns), repeat=2):
        if multiples.is_multiple_of(values):
            fewer = m if _pairs(kept[m]) <= _pairs(kept[v]) else v
            kept[fewer] = replace(kept[fewer], order=None)
    return tuple(kept)


def _pairs(summary: ColumnSummary) -> int:
    """The number of pairs of methods whose order is compared."""
    return 0 if summary.order is None else len(summary.order.pairs)


def _noise(column: Column, rows: Sequence[Compared], margin: Margin, repetitions: Repetitions) -> Noise | None:
    """The noise of the gaps of a column, on logarithms if the margin is in percent; None if no deviation is known."""
    if margin.exact or margin.not_judged is not None:
        return None
    is_ratio = margin.percent is not None
    samples = [
        dict(one.entry.by_seed)
        for one in rows
        if one.entry.mean is not None and one.fair.is_fair and one.method != column.relative_to
    ]
    if is_ratio:
        positive = (values for values in samples if min(values.values()) > 0)
        samples = [{seed: math.log(value) for seed, value in values.items()} for values in positive]
    runs = pooled(samples)
    if runs is None:
        return None
    deviations = []
    if repetitions.deviation == "seeds":
        certain = [one.number for one in rows if one.number is not None and not one.number.doubtful]
        deviations = [
            number.std / (number.value if is_ratio else 1) for number in certain if number.value and number.std
        ]
    return Noise(runs, pooled_deviations(deviations), repetitions.seeds or 1)


def _order(rows: Sequence[Compared]) -> OrderOfMethods | None:
    """The order of the methods with fair runs and a certain published number, compared with the printed order.

    Quoted numbers are compared with quoted ones only: papers differ in settings and machines.
    """
    numbers = {
        method: number
        for method, entry, number, fair, _ in rows
        if entry.mean is not None
        and number is not None
        and fair.is_fair
        and not number.doubtful
        and not number.censored
    }
    values = {one.method: dict(one.entry.by_seed) for one in rows if one.method in numbers}
    return order(values, numbers, {method: number.quoted for method, number in numbers.items()})


def _number(
    numbers: pd.DataFrame,
    of_table: pd.DataFrame,
    layout: TableLayout,
    experiment: Experiment,
    block: TableBlock,
    method: str,
    column: Column,
) -> PublishedNumber | None:
    """The published number of an entry, without its deviation if the table has other columns for deviations.

    `numbers`: those of the paper; `of_table`: those of the layout's table.
    In a column of multiples, a number that is not printed as a multiple is divided by that of the reference.
    """
    number = find(of_entry(of_table, layout, experiment, block, method, column), table=layout.published)
    if number is None or "value" in column.published:
        return number and number.deviation
    if column.relative_to is not None and column.divides_published:
        reference = find(fitting(numbers, keys_of(layout, experiment, block, column.relative_to, column)))
        if reference is None:
            raise UserError(
                f"column {column.name}: table {layout.published} prints no number of {column.relative_to} "
                "by which those of the other methods could be divided"
            )
        return number.multiple_of(reference, column.decimals)
    has_columns_of_deviations = any("value" in other.published for other in layout.columns)
    return replace(number, std=None) if has_columns_of_deviations else number
