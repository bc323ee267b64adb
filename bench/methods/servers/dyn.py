"""FedDyn's server: the mean model, moved on by the mean of all clients' duals (Acar et al. 2021).

    H̄ ← H̄ + (1/N) Σ_{i∈S} (w_i⁺ − w^t);     w^{t+1} = Σ p_i w_i⁺ + H̄          (`server_dual: all`)
    y_i = w_i⁺ + H_i is sent;               w^{t+1} = Σ p_i y_i                  (`server_dual: active`)

The second is what FedSpeed and FedDC print; their released codes do the first. With all clients active both coincide.
"""

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from bench.input.errors import UserError
from bench.methods.base import Server, ServerRound
from bench.methods.corrections.dyn import ServerDual


class DynServer(Server):
    """Σ p_i w_i⁺ + H̄, where H̄ = (1/N) Σ over all clients of H_i at all times. It has no server step size."""

    name: ClassVar[str] = "feddyn"
    needs_client_state: ClassVar[tuple[str, ...]] = ("H",)

    server_correction: bool = Field(default=True, description="add H̄; without it the server is FedAvg's")
    server_dual: ServerDual = Field(
        default="all", description="whose duals are averaged: everybody's (H̄), or the active clients', who send them"
    )
    dual_norm: Literal["N", "M"] = Field(
        default="N", description="H̄ moves by the sum of updates over all N clients, or over the M active ones"
    )

    @model_validator(mode="after")
    def _not_contradictory(self) -> "DynServer":
        if self.server_dual == "active" and not self.server_correction:
            raise UserError("server_correction: false leaves out the dual that clients send with server_dual: active")
        if self.server_dual == "active" and self.dual_norm == "M":
            raise UserError("dual_norm: M is of the server's own dual, which server_dual: active has not")
        return self

    @property
    def keeps_dual(self) -> bool:
        """Whether the server has a dual of its own."""
        return self.server_correction and self.server_dual == "all"

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """H̄ = 0."""
        return {"H_bar": w0.new_zeros(w0.shape)} if self.keeps_dual else {}

    def needs_unit_server_lr(self) -> bool:
        """Only FedAvg's server has a step size."""
        return self.server_correction

    def step(self, server: ServerRound) -> Tensor:
        """The next global model, and H̄. With `active` the uploaded models hold the duals already."""
        if not self.server_correction:
            return server.w + server.server_lr * server.mean_update
        mean_model = server.mean_model
        if not self.keeps_dual:
            return mean_model
        clients = server.n_clients if self.dual_norm == "N" else len(server.updates)
        server.state["H_bar"] = server.state["H_bar"] + server.updates.sum(0) / clients
        return mean_model + server.state["H_bar"]
