"""Add the published numbers to a filled table: for each entry the number that the paper prints, and a verdict."""

from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.published.numbers import KeyValue, PublishedNumber, find, fitting, published
from analysis.published.verdicts import RankCorrelation, Reproduced, Verdict, counts, rank_correlation, rule, verdict
from analysis.tables.layout import Block, Column, Keys, TableLayout
from analysis.tables.table import Entry, PublishedEntry, Table
from bench.data.sources import parse_source
from bench.engine.participation import Participation
from bench.experiments.address import CellAddress
from bench.experiments.experiment import Experiment, load_experiment
from bench.experiments.run_config import RunConfig


def with_published(table: Table, experiment: Experiment, paper: str) -> Table:
    """The table with the numbers of the paper's table `layout.published`, verdicts, and rank correlations per column.

    Only runs with the settings of the paper's own experiment are judged. A `UserError` if several published numbers fit
    one entry.
    """
    layout, numbers, papers_own = table.layout, published(paper), load_experiment(paper)

    def published_entry(entry: Entry, block: Block, method: str, column: Column) -> PublishedEntry:
        number = _number(numbers, layout, experiment, block, method, column)
        settings = () if entry.mean is None else layout.settings_of(block, column, experiment)
        fair = all(_as_in_the_paper(CellAddress(setting, method), experiment, papers_own) for setting in settings)
        return _judged(entry, number, column, fair=fair)

    rows = [
        [
            tuple(
                published_entry(entry, block, method, column)
                for column, entry in zip(layout.columns, entries, strict=True)
            )
            for method, entries in zip(layout.methods, rows_of_block, strict=True)
        ]
        for block, rows_of_block in zip(layout.blocks, table.entries, strict=True)
    ]
    entries = tuple(map(tuple, rows))
    if experiment.scale != "paper":
        return replace(table, published=entries, foot="Nothing is judged at this scale.")
    taus = tuple(_taus(layout, *pair) for pair in zip(table.entries, entries, strict=True))
    foot = [f"Verdicts: {counts(entry.verdict for block in entries for row in block for entry in row)}.", rule()]
    if experiment.report is not None:
        foot.append(f"The reported value is the requested one (report={experiment.report}), not the paper's.")
    if any(map(any, taus)):
        foot.append("Kendall's τ compares the order of the methods, reproduced and published.")
    return replace(table, published=entries, taus=taus, foot=" ".join(foot))


def _as_in_the_paper(cell: CellAddress, experiment: Experiment, papers_own: Experiment) -> bool:
    """Whether a cell's runs have the settings of the paper's own experiment; seeds may differ."""
    if experiment.scale != "paper" or not (experiment.has_cell(cell) and papers_own.has_cell(cell)):
        return False
    ours, theirs = (_settings(one.cell(cell.path).runs[0]) for one in (experiment, papers_own))
    return ours == theirs


def _settings(run: RunConfig) -> dict[str, Any]:
    """The part of a configuration that decides a run's results and which rounds are evaluated, without its seed."""
    saved = {"snapshot_every", "local_models"}
    return run.model_dump(exclude={"seed": True, "engine": True, "evaluation": saved})


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


def _judged(entry: Entry, number: PublishedNumber | None, column: Column, *, fair: bool) -> PublishedEntry:
    """The published number with the verdict on the entry."""
    if number is not None and not fair:
        return PublishedEntry(number, Verdict("not judged"), fair=False)
    reproduced = entry.missing if entry.mean is None else Reproduced(entry.mean, entry.std, entry.seeds)
    return PublishedEntry(number, verdict(reproduced, number, column.judged_as))


def _taus(
    layout: TableLayout, entries: tuple[tuple[Entry, ...], ...], published: tuple[tuple[PublishedEntry, ...], ...]
) -> tuple[RankCorrelation | None, ...]:
    """The rank correlation of each column of a block, over methods with a reproduced and a certain published number."""
    columns = zip(zip(*entries, strict=True), zip(*published, strict=True), strict=True)
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
