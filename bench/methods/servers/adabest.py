"""AdaBest's server: the mean model plus a multiple of its last change (Varno et al., ECCV 2022).

w̄_new = Σ p_i w_i⁺;     w^{t+1} = w̄_new + β (w̄_new − w̄);     w̄ ← w̄_new
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import Server, ServerRound
from fedflat.bench.methods.marks import Neutral, Search


class MeanMovement(Server):
    """w̄_new − h with h = β (w̄ − w̄_new). There is no server learning rate."""

    name: ClassVar[str] = "adabest"

    beta: Annotated[float, Neutral(0), Search(low=0.8, high=0.9)] = Field(
        ge=0, description="weight of the last change of the mean model", examples=[0.8]
    )

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """w̄ = w^0."""
        return {"w_bar": w0.clone()}

    def also_evaluated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """w̄, which the paper prefers at inference."""
        return {"w_bar": state["w_bar"]}

    def needs_unit_server_lr(self) -> bool:
        """True."""
        return True

    def step(self, server: ServerRound) -> Tensor:
        """w̄_new + β (w̄_new − w̄)."""
        w_bar = server.mean_model
        step = w_bar + self.beta * (w_bar - server.state["w_bar"])
        server.state["w_bar"] = w_bar
        return step
