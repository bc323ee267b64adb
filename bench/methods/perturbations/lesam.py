"""LESAM: the global perturbation, estimated from the last two global models that a client received.

δ = ρ (w_i^old − w^t)/‖w_i^old − w^t‖, constant over the round;  then w_i^old ← w^t   (Fan et al. 2024, Alg. 1)
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from bench.methods.base import ClientRound, Gradient, Perturbation, unit


class LESAM(Perturbation):
    """δ = ρ unit(w_i^old − w^t); one gradient per step."""

    name: ClassVar[str] = "lesam"
    client_state: ClassVar[tuple[str, ...]] = ("w_old",)

    rho: float = Field(ge=0, description="perturbation radius")
    first_seen: Literal["zero", "none"] = Field(
        default="zero",
        description="a client's first round: w_i^old = 0 as printed, so δ = −ρ w^t/‖w^t‖; or no perturbation",
    )
    estimate: Literal["published"] = Field(default="published", description="how the direction is estimated")

    def start(self, client: ClientRound) -> None:
        """δ, once per round."""
        if client.first_time and self.first_seen == "none":
            client.scratch["delta"] = torch.zeros_like(client.w_global)
        else:
            client.scratch["delta"] = self.rho * unit(client.state["w_old"] - client.w_global)

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """The round's δ, whatever w."""
        return client.scratch["delta"]

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """w_i^old ← w^t."""
        client.state["w_old"] = client.w_global
