"""What methods cost: means over settings and seeds, relative to FedAvg, and which methods no other one dominates."""

import numpy as np
import pandas as pd

from analysis.comparison.statistics.scores import Floats, Scores

COSTS = ("communicated_mb", "gradients", "seconds")
"""Columns of what a whole run has spent."""

REFERENCE = "fedavg"
"""The stored method to which costs are related."""


def stored_costs(rows: pd.DataFrame) -> list[str]:
    """The costs that all methods have."""
    return [cost for cost in COSTS if cost in rows and (rows.groupby("method")[cost].count() > 0).all()]


def costs(rows: pd.DataFrame, scores: Scores) -> pd.DataFrame:
    """One row per method: its mean score and the number of its runs without one, the means of the stored costs, those
    relative to FedAvg's if it is stored, and whether no other method is at least as good and cheaper (`front_COST`).

    Costs of a run that diverged are not those of all rounds, and are left out. A method is NaN in the mean score if it
    has no measured run in a setting; then it is not on the front.
    """
    finished = rows[rows["outcome"] != "diverged"]
    table = pd.DataFrame({"method": scores.methods, "mean": scores.means, "missing": scores.missing.sum(axis=(1, 2))})
    for cost in stored_costs(rows):
        by_setting = finished.groupby(["method", "dataset", "partition", "participation"])[cost].mean()
        table[cost] = table["method"].map(by_setting.groupby("method").mean())
        if REFERENCE in scores.methods:
            table[f"{cost}_relative"] = table[cost] / table.loc[table["method"] == REFERENCE, cost].iloc[0]
        gains = table["mean"] if scores.better == "higher" else -table["mean"]
        table[f"front_{cost}"] = pareto_front(table[cost].to_numpy(float), gains.to_numpy(float))
    return table


def pareto_front(costs: Floats, gains: Floats) -> np.ndarray:
    """Which points no other one dominates, with costs at most as high, gains at least as high, and one better.

    Points without a cost or gain are not on the front.
    """
    known = np.isfinite(costs) & np.isfinite(gains)
    cheaper = costs[:, None] <= costs[None, :]
    as_good = gains[:, None] >= gains[None, :]
    differs = (costs[:, None] < costs[None, :]) | (gains[:, None] > gains[None, :])
    dominated = (cheaper & as_good & differs & known[:, None]).any(axis=0)
    return np.asarray(known & ~dominated)
