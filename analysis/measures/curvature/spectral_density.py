"""Density of a symmetric operator's eigenvalues, and its trace, by stochastic Lanczos quadrature."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedflat.analysis.measures.curvature.lanczos import MEMORY, Operator, gauss_quadrature
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import torch_stream

_MARGIN = 6
"""Distance of the grid's ends from the outermost nodes, in units of σ: 1e-9 of a Gaussian's mass is outside."""

Row = NDArray[np.float64]


@dataclass(frozen=True)
class Density:
    """Density of the eigenvalues, φ(t) = 1/P Σ_i N(t; λ_i, σ²), on a grid, and the sum of all eigenvalues.

    `eigenvalue` (the grid), `density` and `stderr` are `[G]`; the density's integral (trapezoidal rule) is 1. `sigma`
    is the standard deviation σ of the Gaussian; `single` is the peak of one eigenvalue, 1/(P σ √2π): lower values of
    the density are noise. `stderr` and `trace_stderr` are standard errors over the random vectors.
    """

    eigenvalue: Row
    density: Row
    stderr: Row
    sigma: float
    single: float
    trace: float
    trace_stderr: float


def spectral_density(
    operator: Operator,
    like: Tensor,
    *,
    probes: Iterable[int],
    steps: int = 80,
    width: float = 0.005,
    seed: int = 0,
    memory: int = MEMORY,
) -> Density:
    """Density of the eigenvalues of the operator A; σ is `width` times the range of the quadrature nodes.

    Each number in `probes` keys a random vector v of signs (vᵀv = P). At most `steps` Lanczos steps from v yield a
    Gauss quadrature of vᵀf(A)v/P. Its mean over v estimates 1/P Σ_i f(λ_i) (Lin, Saad and Yang, SIAM Review 58, 2016;
    Ghorbani et al., ICML 2019). f = N(t; ·, σ²) gives the density; f = identity gives the trace divided by P
    (Hutchinson's estimate). The grid's step is σ/2, and its number of points depends on `width` only. Vectors have the
    shape, device and number format of `like` `[P]`. The basis takes steps·P numbers: a `UserError` if they are more
    than `memory` bytes.
    """
    P = len(like)
    if min(steps, P) * P * like.element_size() > memory:
        allowed = memory // (P * like.element_size())
        raise UserError(
            f"steps = {steps}: that many vectors of {P} numbers need too much memory (allowed: 1 to {allowed})"
        )
    rules = []
    for probe in probes:
        signs = torch.randint(2, (P,), generator=torch_stream(seed, "random-signs", probe)) * 2 - 1
        rules.append(gauss_quadrature(operator, signs.to(like), steps))
    low, high = min(nodes[-1] for nodes, _ in rules), max(nodes[0] for nodes, _ in rules)
    sigma = width * float(high - low or 1)
    points = (math.ceil(2 / width) if high > low else 0) + 4 * _MARGIN + 1
    grid = low - _MARGIN * sigma + sigma / 2 * np.arange(points)
    peak = 1 / (sigma * np.sqrt(2 * np.pi))
    densities = [peak * np.exp(-0.5 * ((grid[:, None] - nodes) / sigma) ** 2) @ weights for nodes, weights in rules]
    density, stderr = _mean(np.array(densities))
    trace, trace_stderr = _mean(np.array([P * float(nodes @ weights) for nodes, weights in rules]))
    return Density(grid, density, stderr, sigma, peak / P, float(trace), float(trace_stderr))


def _mean(values: NDArray[np.float64]) -> tuple[Row, Row]:
    """Mean over the first axis, and its standard error."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
