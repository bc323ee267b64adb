"""Which searched values lie at an end of their range: there, the optimum may be outside."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from fedflat.analysis.comparison.flat.units import SETTING
from fedflat.analysis.comparison.tuning.search_budgets import RANGES, budget_of
from fedflat.bench.tuning.protocol.schema import Protocol

NEAR = 0.05
"""Values within this share of a range from its end count as being at it."""

LOW, INSIDE, HIGH = "low", "", "high"
BASE, LAST = "base", "last"


def share(value: float, low: float, high: float, *, log: bool = False) -> float:
    """Where a value lies in a range, from 0 at its low to 1 at its high end, on the scale of its draws."""
    scale = math.log if log else float
    return (scale(value) - scale(low)) / (scale(high) - scale(low))


def end_of(value: float, low: float, high: float, *, log: bool = False) -> str:
    """At which end of a range a value lies; '' for neither."""
    place = share(value, low, high, log=log)
    return LOW if place <= NEAR else HIGH if place >= 1 - NEAR else INSIDE


def searched_values(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per cell and searched value of tuned runs: `name`, `value`, and the `end` of its range at which it is.

    Listed values have no ends, and are left out.
    """
    cells = runs.drop_duplicates([*SETTING, "method", "hyperparameters", "training", "tuning"])
    found = [
        {**{key: row[key] for key in (*SETTING, "method")}, **one}
        for row in cells.to_dict("records")
        for one in _of_cell(row)
    ]
    return pd.DataFrame(found, columns=[*SETTING, "method", "name", "value", "end"])


def _of_cell(row: Mapping[Any, Any]) -> Iterator[dict[str, Any]]:
    values = {**json.loads(row["training"]), **json.loads(row["hyperparameters"])}
    values |= {f"swa.{name}": value for name, value in (values.get("swa") or {}).items()}
    for name, one in budget_of(row).get(RANGES, {}).items():
        if "values" not in one and values.get(name) is not None:
            end = end_of(values[name], one["low"], one["high"], log=one.get("log", False))
            yield {"name": name, "value": values[name], "end": end}


def ends_reached(won: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """One row per winner of a search by a protocol and value with a range, as `winners` has them.

    `start_end`: at which end of the first range its value is, or beyond; `is_wider`: whether the range has widened;
    `end`: at which end of the last range it is; `at_bound`: whether that end is the bound.
    """
    rows = []
    for row in won.to_dict("records"):
        ranges = protocol.ranges_of(protocol.base_of(row["method"]))
        values, ends = json.loads(row["values"]), json.loads(row["ends"])
        for place, (low, high) in ends.items():
            name, value = place.rpartition(".")[2], values[place]
            one = ranges[name]
            first = (float(one.low or 0), float(one.high or 0))
            end = end_of(value, low, high, log=one.log)
            rows.append(
                {
                    **{key: row[key] for key in (*SETTING, "method", "tuning_seed")},
                    "name": name,
                    "value": value,
                    "start_end": end_of(value, *first, log=one.log),
                    "is_wider": (low, high) != first,
                    "end": end,
                    "at_bound": (end == LOW and low <= one.bound[0]) or (end == HIGH and high >= one.bound[1]),
                }
            )
    return pd.DataFrame(rows)


def points_chosen(won: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """One row per winner of a method with points: the `point` that its own value has, and where it is among them.

    `where`: 'base' at the first point, where the method is its base; 'last' at the last point or beyond; else ''.
    """
    rows = []
    for row in won[won["method"].isin(protocol.methods)].to_dict("records"):
        swept = protocol.methods[row["method"]]
        values = json.loads(row["values"])
        point = next(value for place, value in values.items() if place.rpartition(".")[2] == swept.value)
        is_last = point == swept.values[-1] or (swept.has_scale and point > swept.values[-1])
        where = BASE if point == swept.values[0] else LAST if is_last else INSIDE
        keys = {key: row[key] for key in (*SETTING, "method", "tuning_seed")}
        rows.append({**keys, "name": swept.value, "point": point, "where": where})
    return pd.DataFrame(rows)
