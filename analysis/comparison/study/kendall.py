"""Kendall's τ_b of points that have weights: whole weights are numbers of copies, as in a bootstrap sample."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def tau_b(x: ArrayLike, y: ArrayLike, weights: ArrayLike) -> Floats:
    """τ_b of `x` and `y` `[..., points]` for each row of `weights` `[rows, points]`; `[..., rows]`.

    Points without a value in `x` or `y` are left out. NaN where all remaining points are tied in `x` or `y`.
    """
    x, y, w = (np.asarray(values, dtype=float) for values in (x, y, weights))
    known = np.isfinite(x) & np.isfinite(y)
    of_x, of_y = (np.where(known[..., :, None] & known[..., None, :], signs(values), 0.0) for values in (x, y))
    agreement = _of_pairs(of_x * of_y, w)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(agreement / np.sqrt(_untied(of_x, w, known) * _untied(of_y, w, known)))


def _untied(matrix: Floats, w: Floats, known: NDArray[np.bool_]) -> Floats:
    """Σ_ij w_i w_j over pairs that are not tied; without ties, in fewer steps."""
    points = int(known.sum())
    if matrix.ndim == 2 and np.count_nonzero(matrix) == points * (points - 1):
        kept = w[:, known]
        return np.asarray(kept.sum(axis=1) ** 2 - (kept**2).sum(axis=1))
    return _of_pairs(matrix**2, w)


def signs(values: Floats) -> Floats:
    """sign(v_i − v_j) for all pairs of points `[..., points, points]`; 0 where a value is missing."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.sign(values[..., :, None] - values[..., None, :]))


def _of_pairs(matrix: Floats, w: Floats) -> Floats:
    """Σ_ij w_i w_j m_ij for each row of weights."""
    return np.asarray(((w @ matrix) * w).sum(axis=-1))


def partial(of_x_y: Floats, of_x_z: Floats, of_y_z: Floats) -> Floats:
    """The partial τ of x and y given z, from the three τ; NaN where z has the order of x or of y.

    It is that of a Gaussian copula: sin(π τ/2) are its correlations, and their partial correlation is converted
    back into a τ. So it is 0 where z explains all; Kendall's own partial τ is not (Liu et al., 2012, for the
    correlations).
    """
    a, b, c = (np.sin(np.pi / 2 * tau) for tau in (of_x_y, of_x_z, of_y_z))
    rest = (1 - b**2) * (1 - c**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.clip((a - b * c) / np.sqrt(rest), -1, 1)
    return np.where(rest > 1e-9, 2 / np.pi * np.arcsin(found), np.nan)
