"""A filled table beside the published one: each number with what a paper prints for it, and a verdict."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pandas as pd

from analysis.published import Asked, PublishedNumber, find, fitting, published
from analysis.quantities import quantity
from analysis.table_layout import Block, Column, Keys, TableLayout
from analysis.tables import Beside, Entry, Table
from analysis.verdicts import RankCorrelation, Reproduced, Verdict, counts, rank_correlation, rule, verdict
from bench.data.sources import parse_source
from bench.engine.participation import Participation
from bench.experiments import Experiment

FREE = {"chosen", "grid.seeds", "report"}
"""What may be changed of a paper's experiment without another result: fewer methods, other seeds, what is reported."""


def beside_published(table: Table, experiment: Experiment, paper: str, changed: Collection[str] = ()) -> Table:
    """The table with the published numbers of `layout.published`, verdicts, and rank correlations per column.

    Nothing is judged at another scale than the paper's, nor if one of the experiment's values is `changed` that decides
    what runs reach; nor is a number of other rounds than the run's. A `UserError` if several published numbers fit one
    entry.
    """
    layout, numbers = table.layout, published(paper)
    others = sorted(set(changed) - FREE)
    judged = experiment.scale == "paper" and not others

    def found_beside(entry: Entry, block: Block, method: str, column: Column) -> Beside:
        number = _number(numbers, layout, experiment, block, method, column)
        fair = judged and _same_rounds(number, layout, experiment, block, method, column)
        return _beside(entry, number, column, judged=fair)

    rows = [
        [
            tuple(
                found_beside(entry, block, method, column)
                for column, entry in zip(layout.columns, entries, strict=True)
            )
            for method, entries in zip(layout.methods, of_block, strict=True)
        ]
        for block, of_block in zip(layout.blocks, table.entries, strict=True)
    ]
    beside = tuple(map(tuple, rows))
    taus = tuple(_taus(layout, *pair) for pair in zip(table.entries, beside, strict=True)) if judged else ()
    found = [one.verdict for of_block in beside for of_method in of_block for one in of_method]
    told = f"Verdicts: {counts(found)}. {rule()}" if judged else f"Nothing is judged{_why_not(others)}."
    ranks = " Kendall's τ: of the order of methods, reproduced against published." if any(map(any, taus)) else ""
    return replace(table, beside=beside, taus=taus, foot=told + ranks)


def keys_of(layout: TableLayout, experiment: Experiment, block: Block, method: str, column: Column) -> dict[str, Asked]:
    """The keys of an entry's published number: those of its cell, and what the layout says of block, row and column.

    Where a mean over several settings is taken, they are of the first.
    """
    keys: Keys = {"table": layout.published, "method": method, "metric": column.metric}
    if column.unsupported is None:
        setting = layout.settings_of(block, column, experiment)[0]
        partition, participation = experiment.settings()[setting.path]
        part = experiment.whole_parts[setting.dataset]
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
    """Clients per round, in the mean."""
    if participation.probability is not None:
        return round(participation.probability * clients)
    return participation.active or clients


def of_entry(
    numbers: pd.DataFrame, layout: TableLayout, experiment: Experiment, block: Block, method: str, column: Column
) -> pd.DataFrame:
    """The published numbers that fit an entry. None fits one that the experiment does not have at all."""
    if layout.why_unsupported(method, column) is None and not layout.has(block, method, column, experiment):
        return numbers.iloc[:0]
    return fitting(numbers, keys_of(layout, experiment, block, method, column))


def _number(
    numbers: pd.DataFrame, layout: TableLayout, experiment: Experiment, block: Block, method: str, column: Column
) -> PublishedNumber | None:
    """The published number of an entry. Where the table has columns of printed deviations, other columns show none."""
    number = find(of_entry(numbers, layout, experiment, block, method, column), table=layout.published)
    if number is None or "value" in column.published:
        return number and number.deviation
    apart = any("value" in other.published for other in layout.columns)
    return replace(number, std=None) if apart else number


def _same_rounds(
    number: PublishedNumber | None,
    layout: TableLayout,
    experiment: Experiment,
    block: Block,
    method: str,
    column: Column,
) -> bool:
    """Whether an entry's runs have as many rounds as the published number is of, if both are known."""
    if number is None or number.rounds is None or layout.why_unsupported(method, column) is not None:
        return True
    if not layout.has(block, method, column, experiment):
        return True
    cells = (experiment.cell(f"{setting.path}/{method}") for setting in layout.settings_of(block, column, experiment))
    share = quantity(column.metric).share
    return all(run.training.rounds * share == number.rounds for cell in cells for run in cell.runs)


def _why_not(changed: Sequence[str]) -> str:
    if not changed or "scale" in changed:
        return " at this scale"
    return f": {', '.join(changed)} {'are' if len(changed) > 1 else 'is'} not the paper's"


def _beside(entry: Entry, number: PublishedNumber | None, column: Column, *, judged: bool) -> Beside:
    if number is not None and not judged:
        return Beside(number, Verdict("not judged"))
    reproduced = entry.missing if entry.mean is None else Reproduced(entry.mean, entry.std, entry.seeds)
    return Beside(number, verdict(reproduced, number, column.judged_as))


def _taus(
    layout: TableLayout, entries: tuple[tuple[Entry, ...], ...], beside: tuple[tuple[Beside, ...], ...]
) -> tuple[RankCorrelation | None, ...]:
    """Of each column of a block, over the methods that have both numbers, the published one not in doubt."""
    columns = zip(zip(*entries, strict=True), zip(*beside, strict=True), strict=True)
    return tuple(
        rank_correlation(
            {method: entry.mean for method, entry in zip(layout.methods, of_column, strict=True)},
            {
                method: one.number.value
                for method, one in zip(layout.methods, others, strict=True)
                if one.number is not None and not one.number.doubtful and not one.number.censored
            },
        )
        for of_column, others in columns
    )
