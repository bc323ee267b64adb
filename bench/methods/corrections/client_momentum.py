"""Client-level momentum (FedCM, Xu et al. 2021; MoFedSAM, Qu et al. 2022): a share of the last global direction.

q = α g + (1−α) D;     D ← −Σ p_i Δ_i/(K_i η_t)
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from bench.methods.base import ClientRound, Correction, ServerRound


class ClientMomentum(Correction):
    """q = α g + (1−α) D, with D constant during the round and zero in the first."""

    name: ClassVar[str] = "fedcm"
    server_state: ClassVar[tuple[str, ...]] = ("D",)

    alpha: float = Field(ge=0, le=1, description="weight of the client's own gradient; 1 − α weighs D", examples=[0.1])

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """D."""
        return {"direction": state["D"]}

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """α g + (1−α) D."""
        return torch.lerp(client.received["direction"], g, self.alpha)

    def aggregate(self, server: ServerRound) -> None:
        """D, the mean update as a gradient in units of one local step."""
        server.state["D"] = server.mean_direction
