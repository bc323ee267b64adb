"""Whether a reproduced and a published number are equivalent: the tests behind the verdicts agrees and differs.

d is the gap: the mean over n seeds minus the published number. The deviation s with ν degrees of freedom is pooled over
the methods of a column. The published number counts as a mean over m seeds.

    SE² = s² (1/n + 1/m),        ν degrees of freedom
    SE² = s²/n + s_p²/m,         if the paper prints deviations s_p over seeds; degrees of freedom by Welch, 1947

    agrees:  |d| + t_0.95 SE ≤ margin      the 90 % interval lies within ±margin
    differs: |d| − t_0.975 SE > margin     the 95 % interval lies outside ±margin

Agrees is the result of two one-sided t-tests at 5 % (Schuirmann, 1987).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

WITHIN, OUTSIDE = 0.90, 0.95
"""The confidence of the intervals that must lie within the margin (agrees) and outside it (differs)."""

MOST_SEEDS = 1000
"""The largest number of seeds that `seeds_to_decide` considers."""

_ROUNDING = 1e-9  # relative tolerance: gaps that are equal to the margin are within it


@dataclass(frozen=True)
class Spread:
    """A deviation that is pooled over several methods, with its degrees of freedom."""

    std: float
    df: int
    methods: int


def pooled(samples: Iterable[Sequence[float]]) -> Spread | None:
    """The pooled deviation of samples with means of their own: s² = Σ (n_j − 1) s_j² / Σ (n_j − 1).

    None if no sample has two values.
    """
    arrays = [np.asarray(sample, dtype=float) for sample in samples if len(sample) > 1]
    df = sum(len(array) - 1 for array in arrays)
    if not df:
        return None
    squares = math.fsum(float(((array - array.mean()) ** 2).sum()) for array in arrays)
    return Spread(math.sqrt(squares / df), df, len(arrays))


def pooled_deviations(deviations: Sequence[float]) -> Spread | None:
    """The pooled value of printed deviations. Each counts as one over two seeds, the least that has a deviation."""
    if not deviations:
        return None
    mean_square = math.fsum(std**2 for std in deviations) / len(deviations)
    return Spread(math.sqrt(mean_square), len(deviations), len(deviations))


@dataclass(frozen=True)
class Noise:
    """The noise of the gaps of a column.

    `runs`: deviation of single runs; `printed`: of the paper's runs, None if it is taken to be that of `runs`;
    `seeds`: over how many seeds (m) a published number is a mean.
    """

    runs: Spread
    printed: Spread | None = None
    seeds: int = 1

    def error(self, n: ArrayLike, df: ArrayLike | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Standard error of the gap for means over n seeds, and its degrees of freedom, each with the shape of n.

        `df`: degrees of freedom of `runs`, if they are not those of this column.
        """
        own_df = np.asarray(self.runs.df if df is None else df, dtype=float)
        own = self.runs.std**2 / np.asarray(n, dtype=float)
        if self.printed is None:
            return np.sqrt(own + self.runs.std**2 / self.seeds), np.broadcast_to(own_df, own.shape)
        return welch(own, own_df, self.printed.std**2 / self.seeds, self.printed.df)


def welch(
    variance_a: ArrayLike, df_a: ArrayLike, variance_b: ArrayLike, df_b: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard error of a difference, and its degrees of freedom, from two estimated variances; all broadcast."""
    a, b = np.asarray(variance_a, dtype=float), np.asarray(variance_b, dtype=float)
    total = a + b
    uncertainty = a**2 / np.asarray(df_a, dtype=float) + b**2 / np.asarray(df_b, dtype=float)
    certain = uncertainty == 0  # no variance at all: any degrees of freedom
    return np.sqrt(total), np.where(certain, 1.0, total**2 / np.where(certain, 1.0, uncertainty))


def agrees(gap: ArrayLike, error: ArrayLike, df: ArrayLike, margin: ArrayLike) -> NDArray[np.bool_]:
    """Whether the 90 % interval of the gap lies within ±margin; all arguments broadcast."""
    return _bound(gap, error, df, margin, WITHIN) <= 0


def differs(gap: ArrayLike, error: ArrayLike, df: ArrayLike, margin: ArrayLike) -> NDArray[np.bool_]:
    """Whether the 95 % interval of the gap lies outside ±margin; all arguments broadcast."""
    return _bound(gap, -np.asarray(error, dtype=float), df, margin, OUTSIDE) > 0


def _bound(
    gap: ArrayLike, error: ArrayLike, df: ArrayLike, margin: ArrayLike, confidence: float
) -> NDArray[np.float64]:
    """How far the end of the interval of |gap| lies beyond the margin."""
    quantile = stats.t.ppf((1 + confidence) / 2, np.asarray(df, dtype=float))
    bound = np.asarray(margin, dtype=float) * (1 + _ROUNDING)
    return np.asarray(np.abs(np.asarray(gap, dtype=float)) + quantile * np.asarray(error, dtype=float) - bound)


def seeds_to_decide(gap: float, margin: float, noise: Noise) -> int | None:
    """The smallest number of seeds per method with which the verdict is agrees or differs, at this gap and deviation.

    None if no number up to `MOST_SEEDS` decides: the gap is close to the margin, compared with the noise of the
    published number.
    """
    n = np.arange(2, MOST_SEEDS + 1)
    error, df = noise.error(n, noise.runs.methods * (n - 1))
    decided = n[agrees(gap, error, df, margin) | differs(gap, error, df, margin)]
    return int(decided[0]) if len(decided) else None
