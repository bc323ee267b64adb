"""MimeLite: server momentum of full gradients, constant during a round (Karimireddy et al. 2021).

q = α g + (1−α) s;     s ← α Σ p_i f_i + (1−α) s,   f_i the gradient over all data of client i at w^t
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Correction, ServerRound
from fedflat.bench.methods.marks import Neutral, Search


class ServerMomentumMimic(Correction):
    """q = α g + (1−α) s. One additional pass over the client's data per round."""

    name: ClassVar[str] = "mimelite"
    server_state: ClassVar[tuple[str, ...]] = ("s_mime",)
    takes_full_gradient: ClassVar[bool] = True

    alpha: Annotated[float, Neutral(1), Search(low=0.01, high=1, log=True)] = Field(
        ge=0, le=1, description="weight of the client's own gradient; 1 − α weighs s", examples=[0.1]
    )

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """s, under the name `momentum`."""
        return {"momentum": state["s_mime"]}

    def start(self, client: ClientRound) -> None:
        """f_i, without clipping and weight decay."""
        client.upload["full_gradient"] = client.full_gradient(client.w_global)

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """α g + (1−α) s."""
        return torch.lerp(client.received["momentum"], g, self.alpha)

    def aggregate(self, server: ServerRound) -> None:
        """s ← α Σ p_i f_i + (1−α) s."""
        mean = server.mean(server.uploads["full_gradient"])
        server.state["s_mime"] = self.alpha * mean + (1 - self.alpha) * server.state["s_mime"]
