"""A filled table beside the published one: each number with what a paper prints for it, and a verdict."""

from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.published.numbers import KeyValue, PublishedNumber, find, fitting, published
from analysis.published.verdicts import RankCorrelation, Reproduced, Verdict, counts, rank_correlation, rule, verdict
from analysis.tables.layout import Block, Column, Keys, TableLayout
from analysis.tables.table import Beside, Entry, Table
from bench.data.sources import parse_source
from bench.engine.participation import Participation
from bench.experiments.experiment import Experiment, load_experiment
from bench.experiments.run_config import RunConfig


def beside_published(table: Table, experiment: Experiment, paper: str) -> Table:
    """The table with the published numbers of `layout.published`, verdicts, and rank correlations per column.

    Only runs with the settings of the paper's own experiment are judged. A `UserError` if several published numbers fit
    one entry.
    """
    layout, numbers, papers_own = table.layout, published(paper), load_experiment(paper)

    def found_beside(entry: Entry, block: Block, method: str, column: Column) -> Beside:
        number = _number(numbers, layout, experiment, block, method, column)
        settings = () if entry.mean is None else layout.settings_of(block, column, experiment)
        fair = all(_as_in_the_paper(f"{setting.path}/{method}", experiment, papers_own) for setting in settings)
        return _beside(entry, number, column, fair=fair)

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
    if experiment.scale != "paper":
        return replace(table, beside=beside, foot="Nothing is judged at this scale.")
    taus = tuple(_taus(layout, *pair) for pair in zip(table.entries, beside, strict=True))
    found = [one.verdict for of_block in beside for of_method in of_block for one in of_method]
    told = f"Verdicts: {counts(found)}. {rule()}"
    asked = (
        ""
        if experiment.report is None
        else f" Values are those asked for (report={experiment.report}), not the paper's."
    )
    ranks = " Kendall's τ: of the order of methods, reproduced against published." if any(map(any, taus)) else ""
    return replace(table, beside=beside, taus=taus, foot=told + asked + ranks)


def _as_in_the_paper(path: str, experiment: Experiment, papers_own: Experiment) -> bool:
    """Whether a cell's runs have the settings of the paper's own experiment, seeds aside."""
    if experiment.scale != "paper" or not (experiment.has(path) and papers_own.has(path)):
        return False
    ours, theirs = (_settings(one.cell(path).runs[0]) for one in (experiment, papers_own))
    return ours == theirs


def _settings(run: RunConfig) -> dict[str, Any]:
    """All that decides what a run reaches and which of its rounds are evaluated, but for its seed."""
    kept = {"snapshot_every", "local_models"}
    return run.model_dump(exclude={"seed": True, "engine": True, "evaluation": kept})


def keys_of(
    layout: TableLayout, experiment: Experiment, block: Block, method: str, column: Column
) -> dict[str, KeyValue]:
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


def _beside(entry: Entry, number: PublishedNumber | None, column: Column, *, fair: bool) -> Beside:
    if number is not None and not fair:
        return Beside(number, Verdict("not judged"), fair=False)
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
                if one.number is not None and one.fair and not one.number.doubtful and not one.number.censored
            },
        )
        for of_column, others in columns
    )
