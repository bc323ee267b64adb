"""AdaBest's correction: a client's past updates, which fade while it is inactive (Varno et al., ECCV 2022).

    q = g − h_i;     h_i ← h_i/(t − τ_i) + μ (w^t − w_i⁺),   τ_i ← t

τ_i is the last round in which client i was active.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Correction
from fedflat.bench.methods.marks import Neutral, Search


class FadingMemory(Correction):
    """q = g − h_i."""

    name: ClassVar[str] = "adabest"

    mu: Annotated[float, Neutral(0), Search(low=0.01, high=0.02, log=True)] = Field(
        ge=0, description="weight of the client's last update in h_i", examples=[0.02]
    )

    def start_client(self, w: Tensor) -> dict[str, Tensor]:
        """h_i = 0 and τ_i = −1, which has no effect while h_i = 0."""
        return {"h": w.new_zeros(w.shape), "last_round": w.new_full((1,), -1.0)}

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """g − h_i."""
        return g - client.state["h"]

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """The new h_i and τ_i."""
        away = client.round - client.state["last_round"]
        moved = client.w_global - w
        client.state["h"] = client.state["h"] / away + self.mu * moved
        client.state["last_round"] = client.state["last_round"] + away
