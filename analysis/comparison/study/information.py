"""The conditional mutual information of Jiang et al. (2020): what a measure adds to the axes of a grid."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedflat.analysis.comparison.study.configurations import Configurations
from fedflat.analysis.comparison.study.kendall import Floats, signs

MOST_AXES = 2
"""The largest number of axes that are known at once, as in the paper."""

K = "K"


def normalised(measure: NDArray[np.int_], result: NDArray[np.int_], known: NDArray[np.int_]) -> float:
    """I(V_measure; V_result | U) / H(V_result | U) of pairs, in [0, 1]; NaN if U determines the result.

    `measure` and `result` `[pairs]`: the signs −1, 0 or 1; `known` `[pairs]`: the value of U as a number from 0 on.
    Probabilities are relative frequencies.
    """
    places = (known * 3 + measure + 1) * 3 + result + 1
    counts = np.bincount(places, minlength=9 * (int(known.max(initial=-1)) + 1)).astype(float).reshape(-1, 3, 3)
    total = counts.sum()
    of_known, of_measure, of_result = counts.sum(axis=(1, 2)), counts.sum(axis=2), counts.sum(axis=1)
    entropy = _plogp(of_known) - _plogp(of_result)
    information = _plogp(counts) - _plogp(of_measure) - _plogp(of_result) + _plogp(of_known)
    if entropy <= 1e-9 * max(total, 1):
        return float("nan")
    return float(np.clip(information / entropy, 0, 1))


def _plogp(counts: Floats) -> float:
    """Σ n log n."""
    positive = counts[counts > 0]
    return float((positive * np.log(positive)).sum())


def information(configurations: Configurations, measure: Floats, result: Floats) -> dict[str, float]:
    """The normalised information without a known axis (key ""), with each one known, and its minimum K.

    V is the sign of a difference between two configurations; U has the values of both on the known axes. Pairs have the
    same data set, and different results. K is the minimum over all sets of at most two axes. `measure` and `result`
    `[configurations]`; NaN leaves a configuration out.
    """
    finite = np.isfinite(measure) & np.isfinite(result)
    of_measure, of_result = signs(measure).astype(int), signs(result).astype(int)
    pairs = np.nonzero(configurations.same_data_set() & finite[:, None] & finite & (of_result != 0))
    found: dict[tuple[str, ...], float] = {}
    for size in range(MOST_AXES + 1):
        for chosen in combinations(range(len(configurations.axes)), size):
            known = _numbered([configurations.codes[axis][side] for axis in chosen for side in pairs], len(pairs[0]))
            key = tuple(configurations.axes[axis] for axis in chosen)
            found[key] = normalised(of_measure[pairs], of_result[pairs], known)
    defined = [value for value in found.values() if np.isfinite(value)]
    by_axis = {"".join(key): value for key, value in found.items() if len(key) < MOST_AXES}
    return by_axis | {K: min(defined, default=float("nan"))}


def _numbered(columns: Sequence[NDArray[np.int_]], length: int) -> NDArray[np.int_]:
    """The distinct combinations of columns as numbers from 0 on."""
    numbers = np.zeros(length, dtype=int)
    for column in columns:
        numbers = numbers * (int(column.max(initial=0)) + 1) + column
    return np.unique(numbers, return_inverse=True)[1]
