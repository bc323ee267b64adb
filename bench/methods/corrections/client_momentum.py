"""Client momentum: a mixture with the last global direction D (FedCM, Xu et al. 2021; MoFedSAM, Qu et al. 2022).

q = α g + (1−α) D;     D ← −Σ p_i Δ_i/Σ_k η_{t,k}, which is K_i η_t if the rate is constant during the round
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Correction, ServerRound
from fedflat.bench.methods.marks import Neutral, Search


class ClientMomentum(Correction):
    """q = α g + (1−α) D. D is constant during a round, and zero in the first round."""

    name: ClassVar[str] = "fedcm"
    server_state: ClassVar[tuple[str, ...]] = ("D",)

    alpha: Annotated[float, Neutral(1), Search(low=0.01, high=1, log=True)] = Field(
        ge=0, le=1, description="weight of the client's own gradient; 1 − α weighs D", examples=[0.1]
    )

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """D, under the name `direction`."""
        return {"direction": state["D"]}

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """α g + (1−α) D."""
        return torch.lerp(client.received["direction"], g, self.alpha)

    def aggregate(self, server: ServerRound) -> None:
        """The new D."""
        server.state["D"] = server.mean_direction
