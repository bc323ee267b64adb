"""FedDyn's server: the mean model, moved on by the mean of all clients' duals (Acar et al. 2021).

H̄ ← H̄ + (1/N) Σ_{i∈S} (w_i⁺ − w^t);     w^{t+1} = Σ p_i w_i⁺ + H̄
"""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from bench.methods.base import Server, ServerRound


class DynServer(Server):
    """Σ p_i w_i⁺ + H̄, where H̄ = (1/N) Σ over all clients of H_i at all times. It has no server step size."""

    name: ClassVar[str] = "dyn"
    server_state: ClassVar[tuple[str, ...]] = ("H_bar",)

    server_correction: bool = Field(default=True, description="add H̄; without it the server is FedAvg's")
    server_dual: Literal["all", "active"] = Field(
        default="all", description="whose duals are averaged: everybody's (H̄), or the active clients'"
    )

    def needs_unit_server_lr(self) -> bool:
        """Only FedAvg's server has a step size."""
        return self.server_correction

    def step(self, server: ServerRound) -> Tensor:
        """The next global model, and H̄."""
        H_bar = server.state["H_bar"] + server.updates.sum(0) / server.n_clients
        server.state["H_bar"] = H_bar
        if not self.server_correction:
            return server.w + server.server_lr * server.mean_update
        dual = H_bar if self.server_dual == "all" else server.mean(server.uploads["dual"])
        return server.w + server.mean_update + dual
