"""The values of a table's column: one per run, means over settings, multiples and gains, all seed by seed."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from fedflat.analysis.layouts.quantities import quantity
from fedflat.analysis.measures.convergence import FinalValue, final_values
from fedflat.analysis.tables.layout import Column
from fedflat.bench.experiments.address import RUN_IDS


class Value(NamedTuple):
    """A run's value.

    `reached`: False for a run that missed its target; `number` is then what it spent, a lower bound of what it needs.
    `comparable`: False for a multiple of, or a gain over, a reference that has no value or is zero.
    """

    seed: int
    number: float
    reached: bool = True
    comparable: bool = True


Values = Mapping[tuple[str, ...], Sequence[Value]]
"""One value per seed, by cell."""


def values_of(column: Column, finals: Mapping[str, FinalValue], frame: pd.DataFrame) -> Values:
    """The column's quantity in all cells, from the frame of its tidy file; `finals` by method."""
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
        of_method = frame["target_of"] == column.target
        fixed = frame["target_of"].isna() & (frame["target"] == column.target)
        frame = frame[(of_method if isinstance(column.target, str) else fixed) & (frame["smoothed"] == column.smoothed)]
    reached = frame["reached"] == 1 if "reached" in frame else pd.Series(data=True, index=frame.index)
    rows = frame[[*RUN_IDS, "value"]].assign(reached=reached).itertuples(index=False, name=None)
    values: dict[tuple[str, ...], list[Value]] = {}
    for *key, seed, number, is_reached in rows:
        values.setdefault(tuple(map(str, key)), []).append(Value(int(seed), float(number), bool(is_reached)))
    return values


def rule_of(column: Column, of_table: FinalValue) -> FinalValue:
    """The rule for the values of a column: the column's `final`, else the rule of its quantity, else the table's."""
    return column.final or column.deviation or of_table


def mean_over(settings: Sequence[Sequence[Value]]) -> list[Value]:
    """The mean over settings of each seed with a value in all of them; reached if the target is reached in all."""
    by_seed = [{value.seed: value for value in values} for values in settings]
    common = [seed for seed in by_seed[0] if all(seed in values for values in by_seed)]
    of_seed = ((seed, [values[seed] for values in by_seed]) for seed in common)
    return [
        Value(seed, math.fsum(v.number for v in values) / len(values), all(v.reached for v in values))
        for seed, values in of_seed
    ]


def compared(column: Column, values: Mapping[str, Sequence[Value]]) -> dict[str, list[Value]]:
    """The values by method as the column shows them, in its unit: multiples, gains, or the values themselves.

    A reference run is used if it reached its target and its value is finite, and not zero if it is a divisor.
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
            shown[method] = [_relative(column, value, units.get(value.seed)) for value in own]
    return shown


def _units(column: Column, reference: Sequence[Value]) -> dict[int, float]:
    """The usable values of the reference, by seed."""
    divides = column.in_percent or not column.gain_over
    usable = (run for run in reference if run.reached and math.isfinite(run.number))
    return {run.seed: run.number for run in usable if run.number != 0 or not divides}


def _relative(column: Column, value: Value, unit: float | None) -> Value:
    """The value as a multiple of the reference's value, or as a gain over it."""
    if unit is None:
        return value._replace(comparable=False)
    if not column.gain_over:
        return value._replace(number=value.number / unit / column.unit)
    gain = value.number - unit
    return value._replace(number=100 * gain / unit if column.in_percent else gain / column.unit)


def stopped_without_value(values: Sequence[Value], stops: Sequence[Mapping[int, int]]) -> str:
    """At which rounds runs without a value stopped, in words; empty if none did.

    `stops`: for each setting, the seeds that stopped early, and their last rounds.
    """
    known = {value.seed for value in values if math.isfinite(value.number)}
    rounds = sorted({last for ends in stops for seed, last in ends.items() if seed not in known})
    if not rounds:
        return ""
    return f"stopped at round {rounds[0]}" if len(rounds) == 1 else f"stopped at rounds {rounds[0]} to {rounds[-1]}"


def runs_over(settings: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """From pairs (seeds, diverged seeds) per setting: the fewest seeds, the diverged seeds of all settings, and the
    number of settings with runs."""
    seeds, diverged = zip(*settings, strict=True)
    return min(seeds), sum(itertools.chain(diverged)), sum(count > 0 for count in seeds)
