"""Which searched values lie at an end of their range: there, the optimum may be outside."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.comparison.flat.regime import SETTING
from analysis.comparison.tuning.search_budgets import RANGES, budget_of

NEAR = 0.05
"""Values within this share of a range from its end count as being at it."""

LOW, INSIDE, HIGH = "low", "", "high"


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
