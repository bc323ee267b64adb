"""No perturbation: plain stochastic gradients."""

from typing import ClassVar

import torch
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation


class NoPerturbation(Perturbation):
    """δ = 0; one gradient per step."""

    name: ClassVar[str] = "none"
    weighted_by_samples: ClassVar[bool] = True

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """Zero."""
        return torch.zeros_like(w)

    def gradient(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """∇F_i(w)."""
        return gradient(w)
