"""FedNSAM's server: Nesterov momentum (Liu et al., 2026).

    m ← βm + Σ p_i (w_i⁺ − w_{i,0});     w^{t+1} = w^t + m
    clients start from w_{i,0} = w^t + βm              (`ascent: gradient`)
    clients start from w_{i,0} = w^t and receive m     (`ascent: momentum`)

Evaluated is w^{t+1}, not the look-ahead point. The code of March 2026 loses the old m: m = Δ in the first round, and
(1+β) Δ afterwards (`momentum: last_update`).
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ServerRound
from fedflat.bench.methods.perturbations.nsam import Ascent, SharedBeta
from fedflat.bench.methods.servers.look_ahead import LookAhead


class NesterovServer(LookAhead):
    """w + m. With the default switches it is FedACG's server."""

    name: ClassVar[str] = "fednsam"

    beta: SharedBeta = Field(ge=0, lt=1, examples=[0.85], description="momentum, and length of the look-ahead")
    ascent: Ascent = Field(
        default="gradient", description="SAM at clients that start from w^t + βm; or one gradient at w + βm − ρ unit(m)"
    )
    momentum: Literal["accumulated", "last_update"] = Field(
        default="accumulated", description="m sums up all updates, or is a multiple of the last one"
    )

    def broadcast_model(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> Tensor:
        """w^t + βm, or w^t."""
        return super().broadcast_model(w, state, t) if self.ascent == "gradient" else w

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """m, if clients ascend along it."""
        return {} if self.ascent == "gradient" else {"momentum": state["m"]}

    def step(self, server: ServerRound) -> Tensor:
        """w^t + m."""
        if self.momentum == "accumulated":
            return super().step(server)
        factor = 1.0 if server.round == 0 else 1 + self.beta
        server.state["m"] = factor * server.mean_update
        return server.w + server.state["m"]
