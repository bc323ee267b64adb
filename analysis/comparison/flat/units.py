"""The unit of all statistics is a whole search: a method's values that one tuning seed found, with all their runs.

The rows of a unit's training seeds are averaged, and its tuning seed becomes the `seed` of the row.
"""

import json

import pandas as pd

from fedflat.analysis.comparison.baselines import rated_columns
from fedflat.analysis.comparison.run_table import CURVE_IDS
from fedflat.analysis.measures.fitting import FITTED, is_fitted
from fedflat.bench.experiments.address import IDS
from fedflat.bench.input.errors import UserError

SETTING = IDS[:3]
FITTED_UNIT = "fitted"
"""A column of units: whether each of its runs is fitted."""


def tuning_seed(tuning: str) -> int:
    """The tuning seed in a value of the column `tuning`; a `UserError` without one."""
    seed = json.loads(tuning or "{}").get("seed")
    if seed is None:
        raise UserError("a run without tuning seed is no unit (allowed: runs with values of fedflat search)")
    return int(seed)


def units(runs: pd.DataFrame, least: float = FITTED) -> pd.DataFrame:
    """One row per setting, method and tuning seed: means of the measured columns over its runs, and `fitted`.

    A mean is NaN if one of the runs has no value. Other columns are those of the first run.
    """
    if runs.empty:
        return runs.assign(**{FITTED_UNIT: pd.Series(dtype=bool), "train_seeds": pd.Series(dtype=int)})
    seeded = runs.assign(
        seed=runs["tuning"].map(tuning_seed), **{FITTED_UNIT: is_fitted(runs["train_accuracy"], least)}
    )
    groups = seeded.groupby([*SETTING, "method", "seed"], sort=False)
    first = groups.first().reset_index()
    for column in rated_columns(runs):
        first[column] = groups[column].mean(skipna=False).to_numpy()
    first[FITTED_UNIT] = groups[FITTED_UNIT].all().to_numpy()
    first["train_seeds"] = groups.size().to_numpy()
    return first[[*runs, FITTED_UNIT, "train_seeds"]]


def unit_curves(runs: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """The curves of units: means over their runs. A unit has the identity of its first run, as in `units`."""
    seeds = runs[CURVE_IDS].assign(unit=runs["tuning"].map(tuning_seed))
    joined = curves.merge(seeds, on=CURVE_IDS)
    keys = [column for column in CURVE_IDS if column not in ("seed", "identity")]
    measured = [column for column in curves if column not in (*CURVE_IDS, "round")]
    means = joined.groupby([*keys, "unit", "round"], sort=False)[measured].mean().reset_index()
    first = joined.drop_duplicates([*keys, "unit"])[[*keys, "unit", "identity"]]
    return means.merge(first, on=[*keys, "unit"]).rename(columns={"unit": "seed"})[list(curves)]
