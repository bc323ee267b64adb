"""Whether a reproduced and a published number are equivalent: the tests behind the verdicts agrees and differs.

d is the gap: the mean over n seeds minus the published number. The deviation s is pooled over the methods of a column;
`Spread.df` has its degrees of freedom. The published number counts as a mean over m seeds.

    SE² = s² (1/n + 1/m)
    SE² = s²/n + s_p²/m,         if the paper prints deviations s_p over seeds; degrees of freedom by Welch, 1947

    agrees:  |d| + t_0.95 SE ≤ margin      the 90 % interval lies within ±margin
    differs: |d| − t_0.975 SE > margin     the 95 % interval lies outside ±margin

Agrees is the result of two one-sided t-tests at 5 % (Schuirmann, 1987).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

WITHIN, OUTSIDE = 0.90, 0.95
"""The confidence of the intervals that must lie within the margin (agrees) and outside it (differs)."""

MOST_SEEDS = 1000
"""The largest number of seeds that `seeds_to_decide` considers."""

_ROUNDING = 1e-9  # relative tolerance: gaps that are equal to the margin are within it


BOUND = 0.8
"""The confidence of the upper bound of the part of the variance that the methods of a seed share."""


@dataclass(frozen=True)
class Spread:
    """A deviation that is pooled over several methods.

    Runs of one seed share partition, initial model and schedule, so their errors are correlated. `seed_share` is the
    part of the pooled variance that lies between seeds rather than between methods within a seed: 1 / methods if the
    errors are independent, 1 if all methods have the same error. `seeds`: runs per method, on average.
    """

    std: float
    methods: int
    seeds: float
    seed_share: float

    @property
    def df(self) -> float:
        """Degrees of freedom of the deviation."""
        return float(degrees_of_freedom(self.seed_share, self.methods, self.seeds))


def degrees_of_freedom(seed_share: ArrayLike, methods: int, n: ArrayLike) -> NDArray[np.float64]:
    """Degrees of freedom of a variance that is pooled over methods with n seeds (Satterthwaite, 1946).

    The variance is the sum of two parts: between seeds with n − 1 degrees of freedom, and within seeds with
    (methods − 1)(n − 1). The first counts with its upper bound, so that tests keep their level with few seeds, too.
    """
    of_seeds = np.asarray(n, dtype=float) - 1
    between = np.asarray(seed_share, dtype=float) * of_seeds / stats.chi2.ppf(1 - BOUND, of_seeds)
    within = 1 - np.asarray(seed_share, dtype=float)
    return np.asarray((between + within) ** 2 * of_seeds / (between**2 + within**2 / max(methods - 1, 1)))


def variance_and_seed_share(runs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variance `[...]` pooled over methods, and the share of it that lies between seeds, from runs `[..., J, n]`."""
    methods, n = runs.shape[-2:]
    errors = runs - runs.mean(axis=-1, keepdims=True)
    variance = (errors**2).sum(axis=(-2, -1)) / (methods * (n - 1))
    between = (errors.mean(axis=-2) ** 2).sum(axis=-1) / (n - 1)
    constant = variance == 0
    return variance, np.where(constant, 1.0, between / np.where(constant, 1.0, variance))


def pooled(samples: Iterable[Mapping[int, float]]) -> Spread | None:
    """The pooled deviation of several methods, each with its values by seed: s² = Σ (n_j − 1) s_j² / Σ (n_j − 1).

    The share between seeds is that in the seeds that all methods have; 1 if these are fewer than two. None if no method
    has two values.
    """
    methods = [sample for sample in samples if len(sample) > 1]
    df = sum(len(sample) - 1 for sample in methods)
    if not df:
        return None
    arrays = [np.array(list(sample.values()), dtype=float) for sample in methods]
    squares = math.fsum(float(((array - array.mean()) ** 2).sum()) for array in arrays)
    common = sorted(set.intersection(*(set(sample) for sample in methods)))
    share = 1.0
    if len(common) > 1:
        share = float(variance_and_seed_share(np.array([[sample[seed] for seed in common] for sample in methods]))[1])
    return Spread(math.sqrt(squares / df), len(methods), 1 + df / len(methods), share)


def pooled_deviations(deviations: Sequence[float]) -> Spread | None:
    """The pooled value of printed deviations. Each counts as one over two seeds, the least that has a deviation."""
    if not deviations:
        return None
    mean_square = math.fsum(std**2 for std in deviations) / len(deviations)
    return Spread(math.sqrt(mean_square), len(deviations), 2, 1 / len(deviations))


@dataclass(frozen=True)
class Noise:
    """The noise of the gaps of a column.

    `runs`: deviation of single runs; `printed`: of the paper's runs, None if it is taken to be that of `runs`;
    `seeds`: over how many seeds (m) a published number is a mean.
    """

    runs: Spread
    printed: Spread | None = None
    seeds: int = 1

    def error(self, n: ArrayLike) -> NDArray[np.float64]:
        """Standard error of the gap for a mean over n seeds, with the shape of n."""
        paper = (self.printed or self.runs).std ** 2 / self.seeds
        return np.asarray(np.sqrt(self.runs.std**2 / np.asarray(n, dtype=float) + paper))

    def df(self, n: ArrayLike, seeds: ArrayLike | None = None) -> NDArray[np.float64]:
        """Degrees of freedom of the gap; `seeds`: of each method of the column, if they are not as they are now."""
        runs, n = self.runs, np.asarray(n, dtype=float)
        df = degrees_of_freedom(runs.seed_share, runs.methods, runs.seeds if seeds is None else seeds)
        if self.printed is None:
            return np.broadcast_to(df, n.shape)
        return welch_df(runs.std**2 / n, df, self.printed.std**2 / self.seeds, self.printed.methods)


def welch_df(a: ArrayLike, df_a: ArrayLike, b: ArrayLike, df_b: ArrayLike) -> NDArray[np.float64]:
    """Degrees of freedom of the sum of two estimated variances a and b; all arguments broadcast."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    uncertainty = a**2 / np.asarray(df_a, dtype=float) + b**2 / np.asarray(df_b, dtype=float)
    certain = uncertainty == 0  # no variance at all: any degrees of freedom
    return np.where(certain, 1.0, (a + b) ** 2 / np.where(certain, 1.0, uncertainty))


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
    error, df = noise.error(n), noise.df(n, n)
    decided = n[agrees(gap, error, df, margin) | differs(gap, error, df, margin)]
    return int(decided[0]) if len(decided) else None
