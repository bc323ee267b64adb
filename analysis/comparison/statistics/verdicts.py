"""Is a method better? Paired differences with every rival, their intervals, tests, and verdicts.

The unit of all tests is the seed: its difference is the mean over the settings, because runs with the same seed in
several settings are not independent (they share the initial model and, if only the participation differs, the split).
"""

import math

import numpy as np
import pandas as pd
from scipy import stats
from scipy.optimize import brentq

from fedflat.analysis.comparison.statistics.scores import Floats, Scores
from fedflat.analysis.measures.paired import interval, sign_flip, sign_flip_corrected, sign_flip_limit
from fedflat.bench.experiments.address import Setting

ALPHA = 0.05
"""The chance of any wrong verdict about a method over all settings is at most this; that of any wrong one in single
settings, too."""

POWER = 0.8
"""The chance with which a difference of the detectable size is found."""

BETTER, UNCLEAR, WORSE, NONE = "better", "cannot tell", "worse", ""
"""Verdicts on a method; none with too few seeds."""


def verdicts(scores: Scores, method: str, corrected: Floats | None = None) -> pd.DataFrame:
    """One row per rival, the best one first: means, difference, interval, wins, p-values and the verdict on the method.

    Differences are method − rival in the unit of the scores; `better` means that the method is better. A verdict needs
    a corrected p-value below 0.05 and a 95 % interval that excludes 0. `corrected`: these p-values, in the order of the
    rivals in `scores`; None: p-values that are corrected for the number of rivals. Means are those of measured runs.
    """
    rivals = [other for other in scores.methods if other != method]
    own, others = scores.place(method), [scores.place(rival) for rival in rivals]
    by_run = scores.gains[own] - scores.gains[others]
    by_seed = by_run.mean(axis=1)
    sign = 1.0 if scores.better == "higher" else -1.0
    corrected = corrected_p(by_seed.T, scores) if corrected is None else corrected
    rows = []
    for k, (rival, place) in enumerate(zip(rivals, others, strict=True)):
        gain, (low, high) = float(by_seed[k].mean()), interval(by_seed[k])
        rows.append(
            {
                "rival": rival,
                "mean": float(scores.means[own]),
                "mean_rival": float(scores.means[place]),
                "difference": sign * gain + 0.0,
                "interval_low": low if sign > 0 else -high,
                "interval_high": high if sign > 0 else -low,
                "wins": int((by_run[k] > 0).sum()),
                "losses": int((by_run[k] < 0).sum()),
                "p": sign_flip(by_seed[k]) if scores.is_judged else math.nan,
                "p_corrected": float(corrected[k]),
                "verdict": verdict(low, high, float(corrected[k])),
                "missing": int(scores.missing[own].sum()),
                "missing_rival": int(scores.missing[place].sum()),
            }
        )
    # Like ranks, the order counts a run without a value as the worst.
    best_first = np.lexsort((rivals, -scores.gains[others].mean(axis=(1, 2))))
    return pd.DataFrame(rows).iloc[best_first].reset_index(drop=True)


def verdicts_by_setting(scores: Scores, method: str) -> dict[Setting, pd.DataFrame]:
    """The verdicts in each setting, with p-values that are corrected for rivals and settings together."""
    others = [k for k, other in enumerate(scores.methods) if other != method]
    p = corrected_by_setting(scores.gains[scores.place(method)] - scores.gains[others], scores)
    return {setting: verdicts(scores.of_setting(setting), method, p[:, k]) for k, setting in enumerate(scores.settings)}


def corrected_p(differences: Floats, scores: Scores) -> Floats:
    """Corrected p-values of differences `[seeds, tests]`; NaN with too few seeds for a verdict."""
    return sign_flip_corrected(differences) if scores.is_judged else np.full(differences.shape[1], math.nan)


def corrected_by_setting(differences: Floats, scores: Scores) -> Floats:
    """P-values `[tests, settings]` of differences `[tests, settings, seeds]`, corrected for all of them together.

    A flip of a seed applies to it in all settings, so that the dependence between settings is kept.
    """
    tests, settings, seeds = differences.shape
    return corrected_p(differences.reshape(-1, seeds).T, scores).reshape(tests, settings)


def verdict(low: float, high: float, p_corrected: float) -> str:
    """The verdict from the interval of a gain and its corrected p-value."""
    if math.isnan(p_corrected):
        return NONE
    if p_corrected >= ALPHA or low <= 0 <= high:
        return UNCLEAR
    return BETTER if low > 0 else WORSE


def detectable_difference(scores: Scores, method: str) -> float:
    """The difference that is found with a chance of 80 %, for a rival with the median spread; NaN with too few seeds.

    Its |t| must exceed the 95 % quantile of the largest |t| over all rivals without true differences; t is noncentral.
    """
    if not scores.is_judged:
        return math.nan
    own = scores.place(method)
    d = np.delete(scores.gains[own] - scores.gains, own, axis=0).mean(axis=1).T
    n = len(d)
    limit = sign_flip_limit(d - d.mean(axis=0), ALPHA)
    median = math.sqrt(float(stats.chi2.median(n - 1)) / (n - 1))  # of a sample deviation, for a true one of 1
    error = float(np.median(d.std(axis=0, ddof=1))) / median / math.sqrt(n)
    distance = brentq(lambda size: float(stats.nct.sf(limit, n - 1, size)) - POWER, 0, 10 * (limit + 1))
    return float(distance) * error
