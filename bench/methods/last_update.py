"""A, the last global update as a direction uphill: what FedTOGA adds to perturbation and correction."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from bench.methods.base import Component, ServerRound


class UsesLastUpdate(Component):
    """A ← −Σ p_i Δ_i/K_i, sent to clients. Components of one method that use it share one A."""

    server_state: ClassVar[tuple[str, ...]] = ("A",)

    scale_A: Literal["K", "etaK"] = Field(  # noqa: N815 - the canonical name
        default="K", description="A = −Δ/K as printed, or −Δ/(K η_t), in units of a gradient"
    )

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A."""
        return {"A": state["A"]}

    def aggregate(self, server: ServerRound) -> None:
        """The new A."""
        server.state["A"] = server.mean_step if self.scale_A == "K" else server.mean_direction
