"""FedDyn's server: the mean model plus the mean H̄ of all clients' duals (Acar et al. 2021).

    H̄ ← H̄ + (1/N) Σ_{i∈S} (w_i⁺ − w^t);     w^{t+1} = Σ p_i w_i⁺ + H̄          (`server_dual: all`)
    clients send y_i = w_i⁺ + H_i;          w^{t+1} = Σ p_i y_i                  (`server_dual: active`)

FedSpeed and FedDC print the second form; their released codes use the first. With all clients active both are equal.
"""

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Server, ServerRound
from fedflat.bench.methods.corrections.dyn import ServerDual


class DynServer(Server):
    """Σ p_i w_i⁺ + H̄. At any time H̄ is the mean of the H_i of all N clients. There is no server learning rate."""

    name: ClassVar[str] = "feddyn"
    needs_client_state: ClassVar[tuple[str, ...]] = ("H",)

    server_correction: bool = Field(default=True, description="add H̄; false: the server is FedAvg's")
    server_dual: ServerDual = Field(
        default="all",
        description="the duals that are averaged: of all clients (H̄), or of the active ones, who send them",
    )
    dual_norm: Literal["N", "M"] = Field(
        default="N",
        description="H̄ moves by the sum of updates divided by the number N of all clients, or M of active ones",
    )

    @model_validator(mode="after")
    def _not_contradictory(self) -> "DynServer":
        if self.server_dual == "active" and not self.server_correction:
            raise UserError(
                "server_correction: false and server_dual: active are not allowed together, "
                "because clients send their duals"
            )
        if self.server_dual == "active" and self.dual_norm == "M":
            raise UserError(
                "dual_norm: M and server_dual: active are not allowed together, because the server then has no dual H̄"
            )
        return self

    @property
    def stores_dual(self) -> bool:
        """Whether the server stores H̄."""
        return self.server_correction and self.server_dual == "all"

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """H̄ = 0, if the server stores it."""
        return {"H_bar": w0.new_zeros(w0.shape)} if self.stores_dual else {}

    def needs_unit_server_lr(self) -> bool:
        """True unless the server is FedAvg's."""
        return self.server_correction

    def step(self, server: ServerRound) -> Tensor:
        """The next global model and H̄. With `active` the models that clients send include their duals."""
        if not self.server_correction:
            return server.w + server.server_lr * server.mean_update
        mean_model = server.mean_model
        if not self.stores_dual:
            return mean_model
        clients = server.n_clients if self.dual_norm == "N" else len(server.updates)
        server.state["H_bar"] = server.state["H_bar"] + server.updates.sum(0) / clients
        return mean_model + server.state["H_bar"]
