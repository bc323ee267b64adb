"""The keys of an entry's published number: those of its cell, unless the layout gives others."""

import pandas as pd

from fedflat.analysis.published.numbers import KeyValue, fitting
from fedflat.analysis.tables.counterparts import Keys
from fedflat.analysis.tables.layout import Column, TableBlock, TableLayout
from fedflat.bench.data.sources import parse_source
from fedflat.bench.engine.participation import Participation
from fedflat.bench.experiments.experiment import Experiment


def keys_of(
    layout: TableLayout, experiment: Experiment, block: TableBlock, method: str, column: Column
) -> dict[str, KeyValue]:
    """The keys of an entry's published number: those of its cell, overridden by those of block, row and column.

    For a mean over several settings, the keys are those of the first setting.
    """
    setting = layout.settings_of(block, column, experiment)[0]
    partition, participation = experiment.settings[setting]
    part = experiment.resolved_parts[setting.dataset]
    model = part.model if isinstance(part.model, str) else (part.model or {}).get("name")
    name, _, parameter = partition.label.partition("-")
    keys: Keys = {
        "table": layout.published, "method": method, "metric": column.metric,
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
    numbers: pd.DataFrame, layout: TableLayout, experiment: Experiment, block: TableBlock, method: str, column: Column
) -> pd.DataFrame:
    """The published numbers that fit an entry; no rows if the experiment lacks the entry's cells."""
    if not layout.has(block, method, column, experiment):
        return numbers.iloc[:0]
    return fitting(numbers, keys_of(layout, experiment, block, method, column))
