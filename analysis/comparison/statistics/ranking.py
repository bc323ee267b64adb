"""Ranks: of means in one setting, with intervals; and mean ranks over settings, with the critical difference."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy.stats import rankdata, studentized_range

from fedflat.analysis.comparison.statistics.scores import Scores
from fedflat.analysis.comparison.statistics.verdicts import ALPHA, corrected_p
from fedflat.analysis.measures.paired import interval
from fedflat.bench.experiments.address import IDS


def ranking(scores: Scores) -> pd.DataFrame:
    """One row per setting and method, with the columns of `ranked`."""
    tables = []
    for setting in scores.settings:
        ids = dict(zip(IDS[:3], (setting.dataset, setting.partition, setting.participation), strict=True))
        of_setting = ranked(scores.of_setting(setting))
        tables.append(pd.concat([pd.DataFrame(ids, index=of_setting.index), of_setting], axis=1))
    return pd.concat(tables, ignore_index=True)


def ranked(scores: Scores) -> pd.DataFrame:
    """One row per method: mean with its 95 % t-interval, rank of the mean (1: best), interval of the rank.

    The unit is the seed, with its mean over the settings. A rank is at least 1 + the number of methods that are better
    by the corrected tests of all differences with this method, and at most the number of methods less those that are
    worse (Mogstad, Romano, Shaikh and Wilhelm 2024). So the interval contains the true rank in at least 95 % of cases.
    With too few seeds it is that of all ranks. The mean is that of measured runs; it has no interval if one is missing.
    """
    gains, measured = scores.gains.mean(axis=1), scores.measured.mean(axis=1)
    ranks = rankdata(-gains.mean(axis=1).round(12))
    rows = []
    for m, method in enumerate(scores.methods):
        above, below = _clearly_better_and_worse(scores, m)
        low, high = interval(measured[m])
        rows.append(
            {
                "method": method,
                "mean": float(scores.means[m]),
                "mean_low": low,
                "mean_high": high,
                "rank": float(ranks[m]),
                "rank_low": 1 + above,
                "rank_high": len(scores.methods) - below,
                "missing": int(scores.missing[m].sum()),
            }
        )
    return pd.DataFrame(rows)


def _clearly_better_and_worse(scores: Scores, m: int) -> tuple[int, int]:
    """The numbers of methods that are better, and worse, than a method by the corrected tests."""
    d = np.delete(scores.gains[m] - scores.gains, m, axis=0).mean(axis=1)
    clear = corrected_p(d.T, scores) < ALPHA
    mean = d.mean(axis=1)
    return int((clear & (mean < 0)).sum()), int((clear & (mean > 0)).sum())


@dataclass(frozen=True)
class MeanRanks:
    """`ranks`: of each method, the mean over settings and seeds (1: best), the best one first.

    `critical`: two methods differ by the test if their mean ranks differ by more; infinite with too few seeds.
    """

    ranks: pd.Series
    critical: float


def mean_ranks(scores: Scores) -> MeanRanks:
    """Mean ranks, and their critical difference by Tukey's test, whose unit is the seed with its ranks over settings.

    s² is the variance that methods and seeds leave unexplained, with (k − 1)(n − 1) degrees of freedom for k methods
    and n seeds; the critical difference is q s / √n, with the 95 % quantile q of the studentized range.
    """
    ranks = rankdata(-scores.gains.round(12), axis=0).mean(axis=1)  # [methods, seeds]
    k, n = ranks.shape
    critical = math.inf
    if scores.is_judged and k > 1:
        rest = ranks - ranks.mean(axis=1, keepdims=True) - ranks.mean(axis=0) + ranks.mean()
        freedom = (k - 1) * (n - 1)
        critical = _tukey(k, freedom) * math.sqrt(float((rest**2).sum()) / freedom / n)
    means = pd.Series(ranks.mean(axis=1), index=list(scores.methods)).sort_values(kind="stable")
    return MeanRanks(means, critical)


@cache  # it takes half a second
def _tukey(k: int, freedom: int) -> float:
    """The 95 % quantile of the studentized range."""
    return float(studentized_range.ppf(1 - ALPHA, k, freedom))
