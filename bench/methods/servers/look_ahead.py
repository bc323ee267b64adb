"""FedACG's server: it sends a look-ahead model and keeps momentum (Kim et al., CVPR 2024).

    a^t = w^t + βm is sent;     m ← βm + Σ p_i (w_i⁺ − a^t);     w^{t+1} = w^t + m

so that w^{t+1} is the mean of the local models.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from bench.methods.base import Server, ServerRound


class LookAhead(Server):
    """w + m, with clients starting at w + βm. It has no server step size."""

    name: ClassVar[str] = "look_ahead"
    server_state: ClassVar[tuple[str, ...]] = ("m",)

    beta: float = Field(ge=0, lt=1, description="momentum, and reach of the look-ahead", examples=[0.85])

    def sent_model(self, w: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """a^t."""
        return w + self.beta * state["m"]

    def needs_unit_server_lr(self) -> bool:
        """The look-ahead presumes a step of 1."""
        return True

    def step(self, server: ServerRound) -> Tensor:
        """w^t + m."""
        server.state["m"] = self.beta * server.state["m"] + server.mean_update
        return server.w + server.state["m"]
