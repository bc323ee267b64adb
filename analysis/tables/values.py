"""What tidy files say of a column: each run's value, means over settings, multiples and gains, seed by seed."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from analysis.measures.convergence import FinalValue, final_values
from analysis.tables.layout import Column
from analysis.tables.quantities import quantity
from bench.experiments.address import RUN_IDS


class Value(NamedTuple):
    """A run's value; of a target that is not `reached` what was spent on it, which is less than it takes.

    A multiple of another run's value that does not exist, or is zero, is not `comparable`, nor is a gain over it.
    """

    seed: int
    number: float
    reached: bool = True
    comparable: bool = True


Values = Mapping[tuple[str, ...], Sequence[Value]]
"""By cell, one value per seed."""


def values_of(column: Column, finals: Mapping[str, FinalValue], frame: pd.DataFrame) -> Values:
    """The column's quantity in all cells, from the file that has it; `finals` by method."""
    shown = quantity(column.metric)
    if shown.file == "metrics":
        by_method = [
            final_values(
                rows,
                shown.column or column.metric,
                rule_of(column, finals[str(method)]),
                column.direction,
                shown.share,
            )
            for method, rows in frame.groupby("method", sort=False)
        ]
        frame = pd.concat(by_method) if by_method else pd.DataFrame(columns=[*RUN_IDS, "value"])
    else:
        frame = frame[frame["metric"] == column.metric]
    if shown.file == "convergence":
        own = frame["target_of"] == column.target
        stated = frame["target_of"].isna() & (frame["target"] == column.target)
        frame = frame[(own if isinstance(column.target, str) else stated) & (frame["smoothed"] == column.smoothed)]
    reached = frame["reached"] == 1 if "reached" in frame else pd.Series(data=True, index=frame.index)
    rows = frame[[*RUN_IDS, "value"]].assign(reached=reached).itertuples(index=False, name=None)
    values: dict[tuple[str, ...], list[Value]] = {}
    for *key, seed, number, there in rows:
        values.setdefault(tuple(map(str, key)), []).append(Value(int(seed), float(number), bool(there)))
    return values


def rule_of(column: Column, of_table: FinalValue) -> FinalValue:
    """Which value of a run a column reports: its quantity's own, or its own, or the table's."""
    return column.final or column.deviation or of_table


def mean_over(settings: Sequence[Sequence[Value]]) -> list[Value]:
    """The mean over settings of each seed that has a value in all; one that did not reach its target in all did not."""
    by_seed = [{value.seed: value for value in values} for values in settings]
    common = [seed for seed in by_seed[0] if all(seed in values for values in by_seed)]
    of_seed = ((seed, [values[seed] for values in by_seed]) for seed in common)
    return [
        Value(seed, math.fsum(v.number for v in values) / len(values), all(v.reached for v in values))
        for seed, values in of_seed
    ]


def compared(column: Column, values: Mapping[str, Sequence[Value]]) -> dict[str, list[Value]]:
    """The values by method as the column shows them: multiples, gains, or as they are, in its unit.

    A reference counts in those seeds in which it reached its target, and has a finite value that is not zero where it
    is divided by.
    """
    shown = {}
    for method, own in values.items():
        reference = column.gain_over.get(method) if column.gain_over else column.relative_to
        if column.gain_over and reference is None:
            shown[method] = list[Value]()
        elif reference is None:
            shown[method] = [value._replace(number=value.number / column.unit) for value in own]
        else:
            units = _units(column, values.get(reference, []))
            shown[method] = [_beside(column, value, units.get(value.seed)) for value in own]
    return shown


def _units(column: Column, reference: Sequence[Value]) -> dict[int, float]:
    divides = column.in_percent or not column.gain_over
    usable = (run for run in reference if run.reached and math.isfinite(run.number))
    return {run.seed: run.number for run in usable if run.number != 0 or not divides}


def _beside(column: Column, value: Value, unit: float | None) -> Value:
    if unit is None:
        return value._replace(comparable=False)
    if not column.gain_over:
        return value._replace(number=value.number / unit / column.unit)
    gain = value.number - unit
    return value._replace(number=100 * gain / unit if column.in_percent else gain / column.unit)


def runs_over(settings: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """Of several settings' seeds that ran and that diverged: the fewest seeds, all divergences, settings that ran."""
    seeds, diverged = zip(*settings, strict=True)
    return min(seeds), sum(itertools.chain(diverged)), sum(count > 0 for count in seeds)
