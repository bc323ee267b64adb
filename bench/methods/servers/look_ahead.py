"""FedACG's server: momentum, with clients that start from the look-ahead model a^t (Kim et al., CVPR 2024).

    a^t = w^t + βm;     m ← βm + Σ p_i (w_i⁺ − a^t);     w^{t+1} = w^t + m

So w^{t+1} is the mean of the local models.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import Server, ServerRound
from fedflat.bench.methods.marks import Neutral, Search


class LookAhead(Server):
    """w + m, where clients start from w + βm. There is no server learning rate."""

    name: ClassVar[str] = "look_ahead"
    server_state: ClassVar[tuple[str, ...]] = ("m",)

    beta: Annotated[float, Neutral(0), Search(low=0.8, high=0.9)] = Field(
        ge=0, lt=1, description="momentum, and length of the look-ahead", examples=[0.85]
    )

    def broadcast_model(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> Tensor:
        """a^t."""
        return w + self.beta * state["m"]

    def needs_unit_server_lr(self) -> bool:
        """True: the look-ahead presumes η_g = 1."""
        return True

    def step(self, server: ServerRound) -> Tensor:
        """w^t + m."""
        server.state["m"] = self.beta * server.state["m"] + server.mean_update
        return server.w + server.state["m"]
