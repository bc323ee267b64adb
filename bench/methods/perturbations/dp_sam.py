"""DP-FedSAM's perturbation: SAM, or ASAM without a constant in its scale, as released (Shi et al., CVPR 2023).

δ = ρ unit(g₁)                              (`ascent: plain`),   g₁ = ∇F_i(w; ξ)
δ = ρ |w|² g₁ / ‖|w| g₁‖                    (`ascent: adaptive`, for all tensors)
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, along
from fedflat.bench.methods.marks import Neutral, Scheduled, Search


class PlainOrAdaptiveSAM(Perturbation):
    """δ of SAM or ASAM. Two gradients per step."""

    name: ClassVar[str] = "dp_fedsam"
    weighted_by_samples: ClassVar[bool] = True

    rho: Annotated[float, Neutral(0), Scheduled(), Search(low=0.001, high=0.5, log=True)] = Field(
        ge=0, examples=[0.1], description="perturbation radius"
    )
    ascent: Literal["plain", "adaptive"] = Field(
        default="plain", description="along the gradient, or in coordinates scaled by |w| as in ASAM"
    )

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """ρ unit(g₁), or ρ |w|² g₁/‖|w| g₁‖."""
        if self.ascent == "plain":
            return along(gradient(w), self.rho)
        T = w.abs()
        return along(T * gradient(w), self.rho) * T
