"""FedAvgM: heavy-ball momentum on the server (Hsu et al. 2019).

m ← βm + Δ;     w^{t+1} = w^t + η_g m
"""

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import Server, ServerRound
from fedflat.bench.methods.marks import Neutral, Search


class Momentum(Server):
    """w + η_g m, without dampening."""

    name: ClassVar[str] = "momentum"
    weighted_by_samples: ClassVar[bool] = True
    server_state: ClassVar[tuple[str, ...]] = ("m",)

    beta: Annotated[float, Neutral(0), Search(low=0.1, high=0.9)] = Field(
        ge=0, lt=1, description="momentum", examples=[0.9]
    )

    def step(self, server: ServerRound) -> Tensor:
        """w^t + η_g m."""
        server.state["m"] = self.beta * server.state["m"] + server.mean_update
        return server.w + server.server_lr * server.state["m"]
