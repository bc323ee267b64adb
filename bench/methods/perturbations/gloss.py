"""FedGloSS's local perturbation: SAM whose radius rises in the first rounds (Caldarola et al., CVPR 2025).

    δ = r_t unit(g₁),   g₁ = ∇F_i(w; ξ),   r_t = ρ₀ + f_t (ρ − ρ₀),   f_t = min(t, T_s)/T_s

T_s is `warmup`; with 0 or 1, f_t = 1. The server's ascent step is in servers/gloss.py.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from bench.input.bounds import MOST
from bench.methods.base import ClientRound, Gradient, Perturbation, along, at_most
from bench.methods.marks import Neutral, Search, Shared

StartRadius = Annotated[float, Shared()]
WarmUp = Annotated[int, Shared()]


def warmed_up(start: float, end: float, t: int | Tensor, warmup: int) -> float | Tensor:
    """The radius of round t, counted from 0, which rises linearly from `start` to `end` within `warmup` rounds."""
    if warmup <= 1:
        return end
    return start + at_most(t, warmup) / warmup * (end - start)


class WarmedUpSAM(Perturbation):
    """δ = r_t unit(g₁). Two gradients per step."""

    name: ClassVar[str] = "fedgloss"
    weighted_by_samples: ClassVar[bool] = True

    rho: Annotated[float, Neutral(0, given={"rho_0": 0}), Search(low=0.001, high=0.5, log=True), Shared()] = Field(
        ge=0, examples=[0.1], description="perturbation radius ρ after the warm-up"
    )
    rho_0: StartRadius = Field(default=0.0, ge=0, description="radius ρ₀ in round 0, if there is a warm-up")
    warmup: WarmUp = Field(
        default=0, ge=0, le=MOST, description="rounds T_s within which the radii rise from ρ₀; 0 and 1: no warm-up"
    )

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """r_t unit(g₁), and zero if the gradient is zero."""
        return along(gradient(w), warmed_up(self.rho_0, self.rho, client.round, self.warmup))
