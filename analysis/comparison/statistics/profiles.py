"""Performance profiles (Dolan and Moré, 2002): in which share of problems a method is within a distance of the best.

A problem is a setting with a seed.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.statistics.scores import Floats, Scores
from fedflat.bench.experiments.address import IDS

COLUMNS = ("measure", "method", "distance", "share")


def gap_profile(scores: Scores) -> pd.DataFrame:
    """The shares of problems in which each method is at most `distance` units worse than the best one.

    One row per method and step; shares grow with the distance. A run without a value is within no distance.
    """
    gaps = scores.gains.max(axis=0) - scores.gains
    gaps = np.where(scores.missing, np.inf, gaps).reshape(len(scores.methods), -1)
    return _profile("gap", scores.methods, gaps)


def cost_profile(rows: pd.DataFrame, methods: Sequence[str], target: str, cost: str) -> pd.DataFrame:
    """The shares of problems in which each method reaches an accuracy with at most `distance` times the least cost.

    `target`: a column of rounds to an accuracy; `cost`: `rounds`, or the column of what a run has spent in all rounds,
    which is spent evenly. Problems in which no method reaches the target are left out.
    """
    spent = rows[target] if cost == "rounds" else rows[cost] * rows[target] / rows["last_round"]
    wide = rows.assign(_spent=spent).pivot(index="method", columns=[*IDS[:3], "seed"], values="_spent")
    costs = wide.loc[list(methods)].to_numpy(dtype=float)
    costs = np.where(np.isfinite(costs), costs, np.inf)
    costs = costs[:, np.isfinite(costs).any(axis=0)]
    return _profile(f"{cost} {target}", methods, costs / costs.min(axis=0, initial=np.inf))


def _profile(measure: str, methods: Sequence[str], distances: Floats) -> pd.DataFrame:
    """The steps of the shares of problems within a distance `[methods, problems]`."""
    problems = distances.shape[1]
    rows = []
    for method, row in zip(methods, distances, strict=True):
        steps, counts = np.unique(row[np.isfinite(row)], return_counts=True)
        shares = counts.cumsum() / max(problems, 1)
        rows += [(measure, method, float(x), float(y)) for x, y in zip(steps, shares, strict=True)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def share_within(profile: pd.DataFrame, methods: Sequence[str], distance: float) -> pd.Series:
    """The share of problems in which each method is within a distance."""
    within = profile[profile["distance"] <= distance].groupby("method")["share"].max()
    return within.reindex(list(methods), fill_value=0.0)
