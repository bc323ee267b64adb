"""FedNSAM's perturbation: SAM, or a look-ahead and an ascent along the server's momentum m (Liu et al., 2026).

    δ = ρ unit(g₁),   g₁ = ∇F_i(w; ξ)          (`ascent: gradient`, as released; clients start from w^t + βm)
    δ = βm − ρ unit(m)                         (`ascent: momentum`, the abstract's wording; clients start from w^t)

m points downhill, so −m is the direction of ascent. With `gradient`, FedNSAM is SAM with the server of FedACG: the
composition of sam, none and look_ahead. Which form the paper prints was not seen.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, along
from fedflat.bench.methods.marks import Scheduled, Search, Shared

Ascent = Annotated[Literal["gradient", "momentum"], Shared()]
SharedBeta = Annotated[float, Search(low=0.8, high=0.9), Shared()]


class NesterovSAM(Perturbation):
    """δ of length ρ along the gradient: two gradients per step. Or a constant δ from m: one gradient."""

    name: ClassVar[str] = "fednsam"
    weighted_by_samples: ClassVar[bool] = True

    rho: Annotated[float, Scheduled(), Search(low=0.001, high=0.5, log=True)] = Field(
        ge=0, examples=[0.1], description="perturbation radius"
    )
    beta: SharedBeta = Field(ge=0, lt=1, examples=[0.85], description="momentum, and length of the look-ahead")
    ascent: Ascent = Field(
        default="gradient", description="SAM at clients that start from w^t + βm; or one gradient at w + βm − ρ unit(m)"
    )

    def start(self, client: ClientRound) -> None:
        """δ of the round, if it comes from m."""
        if self.ascent == "momentum":
            m = client.received["momentum"]
            client.scratch["nsam_delta"] = self.beta * m - along(m, self.rho)

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """ρ unit(g₁), or βm − ρ unit(m)."""
        return along(gradient(w), self.rho) if self.ascent == "gradient" else client.scratch["nsam_delta"]
