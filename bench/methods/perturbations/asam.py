"""ASAM: SAM in coordinates that are scaled by the magnitude of the weights.

T = |w| + η_a for weights, 1 for other parameters            (Caldarola et al. 2022, eq. 6; Kwon et al. 2021)
δ = ρ T² g₁ / ‖T g₁‖,   g₁ = ∇F_i(w; ξ)
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, along
from fedflat.bench.methods.marks import Neutral, Scheduled, Search


class ASAM(Perturbation):
    """δ = ρ T² g₁/‖T g₁‖, so that ‖δ/T‖ = ρ. Two gradients per step."""

    name: ClassVar[str] = "asam"
    weighted_by_samples: ClassVar[bool] = True

    rho: Annotated[float, Neutral(0), Scheduled(), Search(low=0.05, high=2, log=True)] = Field(
        ge=0, examples=[0.1], description="perturbation radius in scaled coordinates"
    )
    eta_a: Annotated[float, Search(values=(0.0, 0.01, 0.1, 0.2))] = Field(
        ge=0, examples=[0.2], description="added to |w| in the adaptive scale T"
    )
    biases: Literal["plain", "adaptive"] = Field(
        default="plain",
        description="scale of tensors that are not named weight: 1 (plain), or as of weights (adaptive)",
    )

    def start(self, client: ClientRound) -> None:
        """Marks the coordinates that are scaled: tensors named weight, including those of norm layers."""
        layout, device = client.layout, client.w_global.device
        scaled = [self.biases == "adaptive" or "weight" in name for name in layout.names]
        marks = [torch.full((size,), mark, device=device) for mark, size in zip(scaled, layout.sizes, strict=True)]
        client.scratch["asam_scaled"] = torch.cat(marks)

    def scale(self, w: Tensor, client: ClientRound) -> Tensor:
        """T; all elements are positive if η_a > 0."""
        return torch.where(client.scratch["asam_scaled"], w.abs() + self.eta_a, torch.ones_like(w))

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """ρ T² g₁/‖T g₁‖."""
        T = self.scale(w, client)
        return along(T * gradient(w), self.rho) * T
