"""Statistics of paired differences: a t-interval, a sign-flip test, and its correction for several tests.

Pure functions of arrays. A pair is two runs with the same setting and seed. The unit is the seed: runs with the same
seed in several settings are not independent. Random draws use a constant seed: equal differences give equal numbers.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

Floats = NDArray[np.float64]

RESAMPLES = 10_000
CONFIDENCE = 0.95
LEAST_PAIRS = 3
"""With this number of seeds there is an interval."""

EXACT_PAIRS = 13
"""Up to this many pairs, all 2^n sign flips are evaluated: 2^13 is the last power of two below `RESAMPLES`."""


def interval(differences: ArrayLike) -> tuple[float, float]:
    """95 % t-interval of the mean of differences, one per seed; those of several settings are averaged first.

    For normal differences, it contains the true mean in 95 % of cases for any number of seeds. (nan, nan) for fewer
    than three: an interval from two would be thirteen standard errors wide on each side.
    """
    d = np.asarray(differences, dtype=float)
    if len(d) < LEAST_PAIRS:
        return (float("nan"), float("nan"))
    mean = float(d.mean())
    half = float(student.ppf((1 + CONFIDENCE) / 2, len(d) - 1)) * float(d.std(ddof=1)) / math.sqrt(len(d))
    return (mean - half, mean + half)


def sign_flip(differences: ArrayLike) -> float:
    """Two-sided p-value of the hypothesis that the sign of each difference is random.

    It is the share of sign flips whose mean is at least as far from 0 as the observed mean: of all flips for up to 13
    pairs; for more pairs, of 10,000 random flips and the observed signs. It is 1 if there are no differences.
    """
    d = np.asarray(differences, dtype=float)
    # Sums of the same values in another order differ by rounding; they count as ties.
    tolerance = 1e-9 * float(np.abs(d).sum())
    return float(np.mean(np.abs(flips(len(d)) @ d) >= abs(float(d.sum())) - tolerance))


def sign_flip_corrected(differences: ArrayLike) -> Floats:
    """P-values of the columns of `differences` `[pairs, tests]`, corrected for the number of tests.

    Westfall and Young's step-down correction (1993, algorithm 4.1) of the sign-flip test: all tests get the same flips,
    and each |t| is compared with the largest one of all tests that are not clearer. So tests of correlated differences,
    such as those of one method with several others, are corrected less than by Holm. If the rows are symmetric about
    the true means, the chance of any false positive below α is at most α.
    """
    d = np.asarray(differences, dtype=float)
    found = _flipped(d)
    order = np.argsort(-found[0], kind="stable")
    largest = np.maximum.accumulate(found[:, order[::-1]], axis=1)[:, ::-1]
    corrected = np.empty(d.shape[1])
    corrected[order] = np.maximum.accumulate(np.mean(largest >= largest[0] - 1e-9, axis=0))
    return corrected


def sign_flip_limit(differences: ArrayLike, alpha: float) -> float:
    """The |t| that a test of `sign_flip_corrected` must exceed for p < `alpha`, from centred differences."""
    d = np.asarray(differences, dtype=float)
    n, largest = len(d), np.sort(_flipped(d).max(axis=1))[::-1]
    reached = (
        math.ceil(alpha * len(largest)) - 3
    )  # by so many flips, besides those of the seen signs and their opposite
    limit = min(float(largest[max(reached, 0)]), math.sqrt(n) * (1 - 1e-9))
    return limit * math.sqrt((n - 1) / (n - limit**2))


def _flipped(d: Floats) -> Floats:
    """|Σ d| / √(Σ d²) of the columns under all flips `[flips, tests]`; it grows with |t|, and is 0 if all d are 0."""
    length = np.sqrt((d**2).sum(axis=0))
    return np.asarray(np.abs(flips(len(d)) @ (d / np.where(length > 0, length, 1))))


@cache
def flips(n: int) -> Floats:
    """Signs `[flips, n]`: those that were seen, and all others, or random ones."""
    if n <= EXACT_PAIRS:
        return np.asarray(1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1), dtype=np.float64)
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], size=(RESAMPLES, n))
    return np.vstack([np.ones(n), drawn])
