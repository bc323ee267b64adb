"""Flatness measures against the score: means of methods, and rank correlations between methods."""

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from fedflat.analysis.comparison.statistics.scores import Scores
from fedflat.analysis.layouts.run_columns import FLATNESS
from fedflat.bench.experiments.address import IDS


def stored_measures(rows: pd.DataFrame) -> list[str]:
    """The flatness measures that more than one method has."""
    return [name for name in FLATNESS if name in rows and rows.loc[rows[name].notna(), "method"].nunique() > 1]


def flatness(rows: pd.DataFrame, scores: Scores) -> pd.DataFrame:
    """One row per method: its mean score over settings and seeds, `missing` runs, and the means of the stored measures.

    A method is NaN in what it lacks in a setting.
    """
    table = pd.DataFrame({"method": scores.methods, "mean": scores.means, "missing": scores.missing.sum(axis=(1, 2))})
    for name in stored_measures(rows):
        of_setting = rows.groupby(["method", *IDS[:3]])[name].mean().unstack("method")
        table[name] = table["method"].map(of_setting.mean(skipna=False))
    return table


def correlations(table: pd.DataFrame) -> pd.DataFrame:
    """Kendall's τ_b of each measure with the score over the methods that have both, and their number.

    Methods with and without SWA are not independent: the study of flatness has intervals that take this into account.
    """
    rows = []
    for name in (column for column in FLATNESS if column in table):
        known = table[np.isfinite(table[name].astype(float)) & table["mean"].notna()]
        tau = kendalltau(known[name], known["mean"]).statistic if len(known) > 1 else np.nan
        rows.append({"measure": name, "tau": float(tau), "methods": len(known)})
    return pd.DataFrame(rows, columns=["measure", "tau", "methods"])
