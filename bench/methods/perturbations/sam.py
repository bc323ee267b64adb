"""SAM: a step of length rho uphill on the client's own mini-batch.

    δ = ρ g₁/‖g₁‖,   g₁ = ∇F_i(w; ξ)                 (Qu et al. 2022, Alg. 1; Caldarola et al. 2022, Alg. 1)

FedSpeed mixes both gradients:  (1−α) g₁ + α ∇F_i(w + δ; ξ)   (Sun et al. 2023, as FedSpeed's quasi-gradient).
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from bench.methods.base import ClientRound, Gradient, Perturbation, along


class SAM(Perturbation):
    """δ = ρ unit(∇F_i(w)); two gradients per step. The norm is over the whole model, not per layer."""

    name: ClassVar[str] = "sam"

    rho: float = Field(ge=0, examples=[0.1], description="perturbation radius")

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """ρ g₁/‖g₁‖, and zero where the gradient is zero."""
        return along(gradient(w), self.rho)


class MixedSAM(SAM):
    """SAM whose direction is (1−α) g₁ + α ∇F_i(w + δ)."""

    name: ClassVar[str] = "mixed_sam"

    alpha: float = Field(default=1.0, ge=0, le=1, description="weight of the perturbed gradient")

    def gradient(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """The mixture of the plain and the perturbed gradient; only what has weight is computed."""
        if self.alpha == 1.0:
            return super().gradient(w, gradient, client)
        plain = gradient(w)
        if self.alpha == 0.0:
            return plain
        return torch.lerp(plain, gradient(w + along(plain, self.rho)), self.alpha)
