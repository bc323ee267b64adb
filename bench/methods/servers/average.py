"""FedAvg's server: a step along the mean update (McMahan et al. 2017).

    w^{t+1} = w^t + η_g Σ p_i Δ_i

MoFedSAM and FedCM print w^{t+1} = w^t − η_g D instead, where D = −Σ p_i Δ_i/(K_i η_t) (`server_step: literal`).
"""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import Server, ServerRound


class Average(Server):
    """w + η_g Δ."""

    name: ClassVar[str] = "average"
    weighted_by_samples: ClassVar[bool] = True

    def step(self, server: ServerRound) -> Tensor:
        """w^t + η_g Δ."""
        return server.w + server.server_lr * server.mean_update


class AverageOrDirection(Average):
    """FedAvg's server, or the printed step along −D, whose η_g has another unit (about K η_t)."""

    name: ClassVar[str] = "average_or_direction"
    weighted_by_samples: ClassVar[bool] = False

    server_step: Literal["average", "literal"] = Field(
        default="average", description="a step along the mean update, or −η_g D as printed"
    )

    def step(self, server: ServerRound) -> Tensor:
        """w^t + η_g Δ, or w^t − η_g D."""
        if self.server_step == "average":
            return super().step(server)
        return server.w - server.server_lr * server.mean_direction
