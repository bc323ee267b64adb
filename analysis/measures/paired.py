"""Statistics of paired differences: a stratified bootstrap interval, a sign-flip test, Holm's correction.

Pure functions of arrays. A pair is two runs with the same setting and seed; a stratum is a setting, and its seeds are
the replicates. Random draws use a constant seed: equal differences give equal numbers.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import bootstrap

Floats = NDArray[np.float64]

RESAMPLES = 10_000
CONFIDENCE = 0.95
EXACT_PAIRS = 13
"""Up to this many pairs, all 2^n sign flips are evaluated: 2^13 is the last power of two below `RESAMPLES`."""


def interval(differences: ArrayLike, strata: ArrayLike) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of all differences, resampled within each stratum.

    Resampled means of n values have only (n - 1)/n of the correct variance: with n = 3, intervals would be 18 % too
    narrow. Therefore each stratum is first stretched about its mean by √(n/(n - 1)) (Rao and Wu, 1988). Percentiles of
    so few values remain rough: for normal differences with three seeds per setting, the interval over four settings
    contains the true mean in 91 % of cases, the interval of one setting in 82 %.

    (nan, nan) if there are no differences, or if a stratum has a single value, whose spread is unknown.
    """
    d, strata = np.asarray(differences, dtype=float), np.asarray(strata)
    groups = [d[strata == stratum] for stratum in np.unique(strata)]
    if not groups or min(map(len, groups)) < 2:
        return (float("nan"), float("nan"))
    stretched = [g.mean() + np.sqrt(len(g) / (len(g) - 1)) * (g - g.mean()) for g in groups]

    def mean(*samples: Floats, axis: int = -1) -> Floats:
        return np.asarray(sum(sample.sum(axis=axis) for sample in samples) / len(d))

    found = bootstrap(
        stretched,
        mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(0),
    ).confidence_interval
    middle = float(d.mean())  # if all differences are equal, rounding can exclude their mean from the interval
    return (min(float(found.low), middle), max(float(found.high), middle))


def sign_flip(differences: ArrayLike) -> float:
    """Two-sided p-value of the hypothesis that the sign of each difference is random.

    It is the share of sign flips whose mean is at least as far from 0 as the observed mean: of all flips for up to 13
    pairs; for more pairs, of 10,000 random flips and the observed signs. It is 1 if there are no differences.
    """
    d = np.asarray(differences, dtype=float)
    n = len(d)
    if n <= EXACT_PAIRS:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    else:
        drawn = np.random.default_rng(0).choice([-1.0, 1.0], size=(RESAMPLES, n))
        signs = np.vstack([np.ones(n), drawn])
    # Sums of the same values in another order differ by rounding; they count as ties.
    tolerance = 1e-9 * float(np.abs(d).sum())
    return float(np.mean(np.abs(signs @ d) >= abs(float(d.sum())) - tolerance))


def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down correction: the chance of any false positive among corrected p-values below α is at most α."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected
