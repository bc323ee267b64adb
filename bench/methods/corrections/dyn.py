"""Dynamic regularisation (FedDyn, Acar et al. 2021), in parameter units: H_i is never divided by λ.

    q = g + λ (H_i + w − w^t);     H_i ← H_i + (w_i⁺ − w^t)

In FedDyn's own symbols the client's gradient memory is −λ H_i.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from bench.methods.base import ClientRound, Correction

ServerDual = Literal["all", "active"]


class DynamicRegulariser(Correction):
    """q = g + λ (H_i + w − w^t)."""

    name: ClassVar[str] = "feddyn"
    client_state: ClassVar[tuple[str, ...]] = ("H",)

    lam: float = Field(ge=0, description="multiplies the drift from the reference point", examples=[0.1])
    server_dual: ServerDual = Field(
        default="all", description="whose duals the server averages: everybody's, or the active clients'"
    )

    def start(self, client: ClientRound) -> None:
        """What stays of q − g − λw during the round, so that a step takes two passes over the model."""
        client.scratch["constant_pull"] = self.constant_pull(client)

    def constant_pull(self, client: ClientRound) -> Tensor:
        """λ (H_i − w^t)."""
        return self.lam * (client.state["H"] - client.w_global)

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """g + λ (H_i + w − w^t)."""
        return torch.add(g, w, alpha=self.lam).add_(client.scratch["constant_pull"])

    def proximal(self) -> float:
        """λ."""
        return self.lam

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """H_i ← H_i + (w_i⁺ − w^t)."""
        client.state["H"] = client.state["H"] + (w - client.w_global)

    def sent_model(self, w: Tensor, client: ClientRound) -> Tensor:
        """w_i⁺; with `active` y_i = w_i⁺ + H_i, whose average is the next model."""
        return w if self.server_dual == "all" else w + client.state["H"]
