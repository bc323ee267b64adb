"""SAM: the gradient is computed after an ascent step of length ρ on the loss of the same mini-batch.

    δ = ρ g₁/‖g₁‖,   g₁ = ∇F_i(w; ξ)                 (Qu et al. 2022, Alg. 1; Caldarola et al. 2022, Alg. 1)

FedSpeed mixes both gradients to its quasi-gradient  (1−α) g₁ + α ∇F_i(w + δ; ξ)   (Sun et al. 2023).
"""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, along
from fedflat.bench.methods.marks import Neutral, Radius, Scheduled, Search


class SAM(Perturbation):
    """δ = ρ unit(∇F_i(w)), with the norm over the whole model, not per layer. Two gradients per step."""

    name: ClassVar[str] = "sam"
    weighted_by_samples: ClassVar[bool] = True

    rho: Annotated[float, Neutral(0), Radius(), Scheduled(), Search(low=0.001, high=0.5, log=True)] = Field(
        ge=0, examples=[0.1], description="perturbation radius"
    )

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """ρ g₁/‖g₁‖, and zero if the gradient is zero."""
        return along(gradient(w), self.rho)


class MixedSAM(SAM):
    """SAM with the gradient (1−α) g₁ + α ∇F_i(w + δ)."""

    name: ClassVar[str] = "mixed_sam"

    alpha: Annotated[float, Neutral(0)] = Field(default=1.0, ge=0, le=1, description="weight of the perturbed gradient")

    def gradient(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """(1−α) g₁ + α ∇F_i(w + δ). A gradient of weight 0 is not computed."""
        if self.alpha == 1.0:
            return super().gradient(w, gradient, client)
        plain = gradient(w)
        if self.alpha == 0.0:
            return plain
        return torch.lerp(plain, gradient(w + along(plain, self.rho)), self.alpha)
