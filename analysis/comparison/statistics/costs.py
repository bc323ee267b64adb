"""What methods cost: means over settings and seeds, relative to FedAvg, and which methods no other one dominates."""

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.statistics.scores import Floats, Scores
from fedflat.bench.experiments.address import IDS

COSTS = ("communicated_mb", "gradients")
"""Columns of what a whole run has spent. Seconds are not among them: those of stored runs are of another machine."""

REFERENCE = "fedavg"
"""The stored method to which costs are related."""


def stored_costs(rows: pd.DataFrame) -> list[str]:
    """The costs that all methods have."""
    return [cost for cost in COSTS if cost in rows and (rows.groupby("method")[cost].count() > 0).all()]


def costs(rows: pd.DataFrame, scores: Scores) -> pd.DataFrame:
    """One row per method: its mean score and the number of its runs without one, the means of the stored costs, those
    relative to FedAvg's if it is stored, and whether no other method is at least as good and cheaper (`front_COST`).

    Costs of a run that diverged are not those of all rounds, and are left out. So a method can lack costs in a setting:
    relative costs, which decide about the front if they are known, are those of the settings in which both methods have
    costs. A method is NaN in the mean score if it has no measured run in a setting; then it is not on the front.
    """
    finished = rows[rows["outcome"] != "diverged"]
    table = pd.DataFrame({"method": scores.methods, "mean": scores.means, "missing": scores.missing.sum(axis=(1, 2))})
    for cost in stored_costs(rows):
        by_setting = (
            finished.groupby(["method", *IDS[:3]])[cost].mean().unstack("method").reindex(columns=scores.methods)
        )
        table[cost] = compared = by_setting.mean().to_numpy()
        if REFERENCE in scores.methods:
            table[f"{cost}_relative"] = relative = by_setting.apply(_relative, to=by_setting[REFERENCE]).to_numpy()
            compared = relative if np.isfinite(relative).any() else compared
        gains = table["mean"] if scores.better == "higher" else -table["mean"]
        table[f"front_{cost}"] = pareto_front(compared, gains.to_numpy(float))
    return table


def _relative(costs: pd.Series, to: pd.Series) -> float:
    """The mean cost of a method, divided by that of another one, over the settings in which both have costs."""
    both = costs.notna() & to.notna()
    return costs[both].mean() / to[both].mean()


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
