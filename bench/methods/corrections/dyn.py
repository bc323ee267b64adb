"""Dynamic regularisation (FedDyn, Acar et al. 2021). The dual H_i has the unit of parameters.

    q = g + λ (H_i + w − w^t);     H_i ← H_i + (w_i⁺ − w^t)

The paper writes −λ H_i as the gradient memory of client i.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Correction, plus
from fedflat.bench.methods.marks import Search, Shared

ServerDual = Annotated[Literal["all", "active"], Shared()]


class DynamicRegulariser(Correction):
    """q = g + λ (H_i + w − w^t)."""

    name: ClassVar[str] = "feddyn"
    client_state: ClassVar[tuple[str, ...]] = ("H",)

    lam: Annotated[float, Search(low=0.001, high=0.2, log=True)] = Field(
        ge=0, description="weight of the drift and the dual", examples=[0.1]
    )
    server_dual: ServerDual = Field(
        default="all", description="the duals that the server averages: of all clients, or of the active ones"
    )

    def start(self, client: ClientRound) -> None:
        """q − g − λw, computed once because it is constant during the round: a step takes two passes over the model."""
        client.scratch["constant_pull"] = self.constant_pull(client)

    def constant_pull(self, client: ClientRound) -> Tensor:
        """λ (H_i − w^t)."""
        return self.lam * (client.state["H"] - client.w_global)

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """g + λ (H_i + w − w^t)."""
        return plus(g, w, self.lam).add_(client.scratch["constant_pull"])

    def proximal(self) -> float:
        """λ."""
        return self.lam

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """H_i ← H_i + (w_i⁺ − w^t)."""
        client.state["H"] = client.state["H"] + (w - client.w_global)

    def uploaded_model(self, w: Tensor, client: ClientRound) -> Tensor:
        """w_i⁺; with `server_dual: active` y_i = w_i⁺ + H_i, whose mean is the next model."""
        return w if self.server_dual == "all" else w + client.state["H"]

    def reveals_update(self) -> bool:
        """True: H_i is the sum of the client's updates, so that y_i − w^t = 2 Δ_i + its value before the round."""
        return True
