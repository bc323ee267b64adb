"""FedGloSS's local perturbation: SAM whose radius rises in the first rounds (Caldarola et al., CVPR 2025).

    δ = r_t unit(g₁),   g₁ = ∇F_i(w; ξ),   r_t = ρ₀ + f_t (ρ − ρ₀),   f_t = min(t, T_s)/T_s

T_s is `warmup`; with 0 or 1, f_t = 1. The server's ascent step is in servers/gloss.py.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.input.bounds import MOST
from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, along
from fedflat.bench.methods.marks import Neutral, Scheduled, Search, Shared
from fedflat.bench.methods.schedules.warm_up import risen

StartRadius = Annotated[float, Shared()]
WarmUp = Annotated[int, Shared()]


class WarmedUpSAM(Perturbation):
    """δ = r_t unit(g₁). Two gradients per step."""

    name: ClassVar[str] = "fedgloss"
    weighted_by_samples: ClassVar[bool] = True

    rho: Annotated[
        float, Neutral(0, given={"rho_0": 0}), Scheduled(), Search(low=0.001, high=0.5, log=True), Shared()
    ] = Field(ge=0, examples=[0.1], description="the clients' radius ρ after the warm-up")
    rho_0: StartRadius = Field(default=0.0, ge=0, description="radius ρ₀ in round 0, if there is a warm-up")
    warmup: WarmUp = Field(
        default=0, ge=0, le=MOST, description="rounds T_s within which the radii rise from ρ₀; 0 and 1: no warm-up"
    )

    def round_values(self, t: int) -> dict[str, float]:
        """r_t in place of ρ, if there is a warm-up."""
        return {"rho": risen(self.rho_0, self.rho, t, self.warmup)} if self.warmup > 1 else {}

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """r_t unit(g₁), and zero if the gradient is zero."""
        return along(gradient(w), self.rho)
