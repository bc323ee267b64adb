"""Statistics of paired differences: a stratified bootstrap interval, a sign-flip test, Holm's correction.

Pure functions of arrays. A pair is two runs of one setting and one seed; a stratum is a setting, its seeds are the
replicates. Everything random is keyed by a constant: the same differences give the same numbers.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import bootstrap

Floats = NDArray[np.float64]

RESAMPLES = 10_000
CONFIDENCE = 0.95
EXACT_PAIRS = 13
"""Up to so many pairs, all 2^n flips of signs are looked at: 2^13 is the last power of two below `RESAMPLES`."""


def interval(differences: ArrayLike, strata: ArrayLike) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of all differences, resampled within each stratum.

    Resampled means of n values have (n - 1)/n of the variance that they should have: with n = 3, intervals would be
    18 % too narrow. So each stratum is stretched about its mean by √(n/(n - 1)) first (Rao and Wu, 1988). Percentiles
    of so few values remain rough: of normal differences with three seeds per setting, the interval over four settings
    holds the true mean in 91 % of cases, that of one setting in 82 %.

    (nan, nan) if a stratum has a single value, which tells nothing of its spread, or if there are none.
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
    middle = float(d.mean())  # equal differences: their resampled means may miss it by a rounding
    return (min(float(found.low), middle), max(float(found.high), middle))


def sign_flip(differences: ArrayLike) -> float:
    """Two-sided p-value of the hypothesis that each difference is as likely to have the other sign.

    The share of flips of signs whose mean is at least as far from 0. All flips up to 13 pairs; of more pairs, 10,000
    random flips and the one that was seen. 1 without differences.
    """
    d = np.asarray(differences, dtype=float)
    n = len(d)
    if n <= EXACT_PAIRS:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    else:
        drawn = np.random.default_rng(0).choice([-1.0, 1.0], size=(RESAMPLES, n))
        signs = np.vstack([np.ones(n), drawn])
    # Sums of the same values in another order differ by roundings: those are ties.
    tolerance = 1e-9 * float(np.abs(d).sum())
    return float(np.mean(np.abs(signs @ d) >= abs(float(d.sum())) - tolerance))


def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down correction: the chance of any false positive among all that are below α is at most α."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected
