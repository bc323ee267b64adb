"""Ranks: of means in one setting, with intervals; and mean ranks over settings, with what the tests cannot tell apart."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from analysis.comparison.statistics.scores import Scores
from analysis.comparison.statistics.verdicts import ALPHA, corrected_p
from analysis.measures.paired import interval
from bench.experiments.address import IDS


def ranking(scores: Scores) -> pd.DataFrame:
    """One row per setting and method: mean with its 95 % t-interval, rank of the mean (1: best), interval of the rank.

    A rank is at least 1 + the number of methods that are better by the corrected tests of all differences with this
    method, and at most the number of methods less those that are worse (Mogstad, Romano, Shaikh and Wilhelm 2024). So
    the interval contains the true rank in at least 95 % of cases. With too few seeds it is that of all ranks.
    """
    rows = []
    for setting in scores.settings:
        own = scores.of_setting(setting)
        gains, values = own.gains[:, 0], own.values[:, 0]
        ranks = rankdata(-gains.mean(axis=1).round(12))
        for m, method in enumerate(scores.methods):
            above, below = _clearly_better_and_worse(own, m)
            low, high = interval(values[m], np.zeros(len(scores.seeds)))
            rows.append(
                {
                    **dict(zip(IDS[:3], (setting.dataset, setting.partition, setting.participation), strict=True)),
                    "method": method,
                    "mean": float(values[m].mean()),
                    "mean_low": low,
                    "mean_high": high,
                    "rank": float(ranks[m]),
                    "rank_low": 1 + above,
                    "rank_high": len(scores.methods) - below,
                    "diverged": int(own.diverged[m].sum()),
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
    """`ranks`: of each method, the mean over settings and seeds (1: best); `p`: corrected p-values of all pairs."""

    ranks: pd.Series
    p: pd.DataFrame


def mean_ranks(scores: Scores) -> MeanRanks:
    """Mean ranks, and sign-flip tests of the ranks of all pairs of methods, corrected for their number.

    The unit of the tests is the seed with its mean rank over settings; with too few seeds, all p-values are 1.
    """
    ranks = rankdata(-scores.gains.round(12), axis=0).mean(axis=1)  # [methods, seeds]
    pairs = list(combinations(range(len(scores.methods)), 2))
    first, second = np.array(pairs, dtype=int).reshape(-1, 2).T
    p = np.ones((len(ranks), len(ranks)))
    if scores.is_judged and pairs:
        p[first, second] = p[second, first] = corrected_p((ranks[first] - ranks[second]).T, scores)
    names = list(scores.methods)
    return MeanRanks(pd.Series(ranks.mean(axis=1), index=names), pd.DataFrame(p, index=names, columns=names))
