"""A loss whose sharpness, smoothed values and gradients are known in closed form."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor, nn

from fedflat.bench.engine.objective import Objective


class Quadratic(Objective):
    """F(w) = mean over samples x of ½ (w − x)ᵀ H (w − x), for w and x `[P]`; labels mean nothing.

    So ∇F(w) = H (w − mean of x), and the Hessian is H whatever the data.
    """

    def __init__(self, hessian: Tensor) -> None:
        super().__init__(nn.ParameterList([torch.zeros(len(hessian), dtype=torch.float64)]))
        self.hessian = hessian

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        offset = w - x
        return (offset @ self.hessian).mean(0), 0.5 * ((offset @ self.hessian) * offset).sum(1).mean()

    def evaluate(self, w: Tensor, data) -> tuple[float, float]:
        losses = [(float(self.gradient(w, x, y)[1]), len(y)) for x, y in data]
        return sum(loss * n for loss, n in losses) / sum(n for _, n in losses), 0.0


def drawn(seed: int, p: int = 6, n: int = 10) -> tuple[Quadratic, Tensor, tuple[Tensor, Tensor]]:
    """A convex quadratic of full rank, a point w, and n samples around zero."""
    stream = torch.Generator().manual_seed(seed)
    root = torch.randn(p, p, generator=stream, dtype=torch.float64)
    w = torch.randn(p, generator=stream, dtype=torch.float64)
    x = torch.randn(n, p, generator=stream, dtype=torch.float64)
    return Quadratic(root @ root.T / p), w, (x, torch.zeros(n, dtype=torch.int64))


def largest_rise(hessian: Tensor, gradient: Tensor, rho: float) -> float:
    """max over ‖δ‖ ≤ ρ of gᵀδ + ½ δᵀHδ, H positive definite.

    It is at δ = (λI − H)⁻¹ g with the λ > λ_max(H) for which ‖δ‖ = ρ; in H's eigenvectors, δ_j = g_j/(λ − h_j).
    """
    h, vectors = np.linalg.eigh(hessian.numpy())
    g: NDArray[np.float64] = vectors.T @ gradient.numpy()
    lowest = h[-1] + 1e-12 * h[-1]
    multiplier = brentq(
        lambda m: np.linalg.norm(g / (m - h)) - rho, lowest, h[-1] + np.linalg.norm(g) / rho, xtol=1e-14
    )
    delta = g / (multiplier - h)
    return float(g @ delta + 0.5 * delta @ (h * delta))
