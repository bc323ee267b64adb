"""The last global update A, with the sign of a gradient. FedTOGA adds it to perturbation and correction."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import Component, ServerRound
from fedflat.bench.methods.marks import Shared


class UsesLastUpdate(Component):
    """A ← −Σ p_i Δ_i/K_i, which the server sends to clients. The components of a method share one A."""

    server_state: ClassVar[tuple[str, ...]] = ("A",)

    scale_A: Annotated[Literal["K", "etaK"], Shared()] = Field(  # noqa: N815 - the canonical name
        default="K", description="A = −Δ/K as printed, or −Δ/(K η_t), which has the unit of a gradient"
    )

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """A."""
        return {"A": state["A"]}

    def aggregate(self, server: ServerRound) -> None:
        """The new A."""
        server.state["A"] = server.mean_step if self.scale_A == "K" else server.mean_direction
