"""Add the published numbers to a filled table: for each entry the number that the paper prints, and a verdict."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from analysis.published.numbers import KeyValue, PublishedNumber, find, fitting, published
from analysis.tables.fairness import FAIR, Fairness, fairness
from analysis.tables.foot import foot
from analysis.tables.layout import Block, Column, Keys, TableLayout
from analysis.tables.table import ColumnSummary, Entry, PublishedEntry, Table
from analysis.verdicts.equivalence import Noise, pooled, pooled_deviations
from analysis.verdicts.margins import Margin, Repetitions, rules
from analysis.verdicts.orders import Order, order
from analysis.verdicts.verdict import Verdict, verdict
from bench.data.sources import parse_source
from bench.engine.participation import Participation
from bench.experiments.address import CellAddress
from bench.experiments.experiment import Experiment, load_experiment

Compared = tuple[str, Entry, PublishedNumber | None, Fairness]
"""A method of a column, its entry, its published number, and whether its runs are as the paper states."""


def with_published(table: Table, experiment: Experiment, paper: str) -> Table:
    """The table with the numbers of the paper's table `layout.published`, verdicts, and comparisons of whole columns.

    Only runs with the settings that the paper states are judged. A `UserError` if several published numbers fit one
    entry.
    """
    layout, numbers, papers_own = table.layout, published(paper), load_experiment(paper)
    repetitions, finals = rules().papers.get(paper, Repetitions()), layout.final_values(experiment)

    def compared(entry: Entry, block: Block, method: str, column: Column) -> Compared:
        number = _number(numbers, layout, experiment, block, method, column)
        settings = () if entry.mean is None else layout.settings_of(block, column, experiment)
        cells = [CellAddress(setting, method) for setting in settings]
        fair = fairness(paper, cells, experiment, papers_own, column, finals[method]) if cells else FAIR
        return method, entry, number, fair

    entries, summaries = [], []
    for block, rows in zip(layout.blocks, table.entries, strict=True):
        columns = [
            _judged(
                column,
                [compared(rows[m][c], block, method, column) for m, method in enumerate(layout.methods)],
                repetitions,
            )
            for c, column in enumerate(layout.columns)
        ]
        entries.append(tuple(zip(*(of_column for of_column, _ in columns), strict=True)))
        summaries.append(tuple(summary for _, summary in columns))
    judged = replace(table, published=tuple(entries), summaries=tuple(summaries))
    return replace(judged, foot=foot(judged, experiment, repetitions))


def _judged(
    column: Column, rows: Sequence[Compared], repetitions: Repetitions
) -> tuple[list[PublishedEntry], ColumnSummary]:
    """The published entries of a column of a block, with verdicts, and the comparison of the column."""
    margin = rules().margin(column.metric, column.form)
    noise = _noise(column, rows, margin, repetitions)
    entries = []
    for method, entry, number, fair in rows:
        if number is not None and not fair.is_fair:
            judged = Verdict("not judged", fair.why)
        elif number is not None and entry.mean is not None and method == column.relative_to:
            judged = Verdict("not judged", "the reference of multiples")
        else:
            values = entry.missing if entry.mean is None else [value for _, value in entry.by_seed]
            judged = verdict(values, number, margin, noise, column.unit)
        entries.append(PublishedEntry(number, judged, fair))
    return entries, ColumnSummary(noise, _order(rows))


def _noise(column: Column, rows: Sequence[Compared], margin: Margin, repetitions: Repetitions) -> Noise | None:
    """The noise of the gaps of a column, on logarithms if the margin is in percent; None if no deviation is known."""
    if margin.exact or margin.not_judged is not None:
        return None
    is_ratio = margin.percent is not None
    samples = [
        dict(entry.by_seed)
        for method, entry, _, fair in rows
        if entry.mean is not None and fair.is_fair and method != column.relative_to
    ]
    if is_ratio:
        positive = (values for values in samples if min(values.values()) > 0)
        samples = [{seed: math.log(value) for seed, value in values.items()} for values in positive]
    runs = pooled(samples)
    if runs is None:
        return None
    deviations = []
    if repetitions.deviation == "seeds":
        certain = [number for _, _, number, _ in rows if number is not None and not number.doubtful]
        deviations = [
            number.std / (number.value if is_ratio else 1) for number in certain if number.value and number.std
        ]
    return Noise(runs, pooled_deviations(deviations), repetitions.seeds or 1)


def _order(rows: Sequence[Compared]) -> Order | None:
    """The order of the methods with fair runs and a certain published number, compared with the printed order."""
    ranked = {
        method: (dict(entry.by_seed), number)
        for method, entry, number, fair in rows
        if entry.mean is not None
        and number is not None
        and fair.is_fair
        and not number.doubtful
        and not number.censored
    }
    return order({m: values for m, (values, _) in ranked.items()}, {m: number for m, (_, number) in ranked.items()})


def keys_of(
    layout: TableLayout, experiment: Experiment, block: Block, method: str, column: Column
) -> dict[str, KeyValue]:
    """The keys of an entry's published number: those of its cell, overridden by those of block, row and column.

    For a mean over several settings, the keys are those of the first setting.
    """
    keys: Keys = {"table": layout.published, "method": method, "metric": column.metric}
    if column.unsupported is None:
        setting = layout.settings_of(block, column, experiment)[0]
        partition, participation = experiment.settings[setting]
        part = experiment.resolved_parts[setting.dataset]
        model = part.model if isinstance(part.model, str) else (part.model or {}).get("name")
        name, _, parameter = partition.label.partition("-")
        keys |= {
            "dataset": parse_source(part.dataset).name, "model": model,
            "partition": name, "partition_param": parameter or None,
            "n_clients": partition.clients, "active_clients": _active(participation, partition.clients),
        }  # fmt: skip
    given = {**keys, **block.published, **layout.rows.get(method, {}), **column.published}
    return {key: value for key, value in given.items() if value is not None and key != "value"}


def _active(participation: Participation, clients: int) -> int:
    """Clients per round on average."""
    if participation.probability is not None:
        return round(participation.probability * clients)
    return participation.active or clients


def of_entry(
    numbers: pd.DataFrame, layout: TableLayout, experiment: Experiment, block: Block, method: str, column: Column
) -> pd.DataFrame:
    """The published numbers that fit an entry; no rows if the experiment lacks the entry's cells."""
    if layout.why_unsupported(method, column) is None and not layout.has(block, method, column, experiment):
        return numbers.iloc[:0]
    return fitting(numbers, keys_of(layout, experiment, block, method, column))


def _number(
    numbers: pd.DataFrame, layout: TableLayout, experiment: Experiment, block: Block, method: str, column: Column
) -> PublishedNumber | None:
    """The published number of an entry, without its deviation if the table has other columns for deviations."""
    number = find(of_entry(numbers, layout, experiment, block, method, column), table=layout.published)
    if number is None or "value" in column.published:
        return number and number.deviation
    has_columns_of_deviations = any("value" in other.published for other in layout.columns)
    return replace(number, std=None) if has_columns_of_deviations else number
