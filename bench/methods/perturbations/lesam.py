"""LESAM: the global perturbation, estimated from the last two global models that a client received.

    δ = ρ unit(w_i^old − w^t), constant over the round;  then w_i^old ← w^t        (Fan et al. 2024, Alg. 1)

The released code sends the last server step u = w^t − w^{t−1} to all clients instead, and takes tensor for tensor:

    δ_j = −ρ u_j / Σ_l ‖u_l‖                    (`released_intent`: u_j the tensors of u)
    δ_j = −ρ u[j] / Σ_l |u[l]|                  (`released_literal`: tensor j is shifted by the j-th number of u)
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from bench.methods.base import EPS, ClientRound, Gradient, Perturbation, ServerRound, norm, unit


class LESAM(Perturbation):
    """δ = ρ unit(w_i^old − w^t); one gradient per step. ‖δ‖ = ρ for the published estimate only."""

    name: ClassVar[str] = "lesam"

    rho: float = Field(ge=0, description="perturbation radius", examples=[0.1])
    first_seen: Literal["zero", "none"] = Field(
        default="zero",
        description="a client's first round: w_i^old = 0 as printed, so δ = −ρ w^t/‖w^t‖; or no perturbation",
    )
    estimate: Literal["published", "released_intent", "released_literal"] = Field(
        default="published", description="from the client's own last model, or from the last server step as released"
    )

    def start_client(self, w: Tensor) -> dict[str, Tensor]:
        """w_i^old = 0, where clients keep it."""
        return {"w_old": torch.zeros_like(w)} if self.estimate == "published" else {}

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """w^{t−1} = w^0, so that u = 0 at first, where the server sends u."""
        return {} if self.estimate == "published" else {"w_before": w0.clone()}

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """u = w^t − w^{t−1}, as released."""
        return {} if self.estimate == "published" else {"last_step": w - state["w_before"]}

    def start(self, client: ClientRound) -> None:
        """δ, once per round."""
        client.scratch["lesam_delta"] = self.rho * self.estimated(client)

    def estimated(self, client: ClientRound) -> Tensor:
        """δ for ρ = 1."""
        w, layout = client.w_global, client.layout
        if self.estimate == "published":
            known = unit(client.state["w_old"] - w)
            return known if self.first_seen == "zero" else torch.where(client.first_time, torch.zeros_like(w), known)
        u = client.received["last_step"]
        if self.estimate == "released_intent":
            lengths = torch.cat([norm(part) for part in u.split(layout.sizes, dim=-1)], dim=-1)
            return -u / (lengths.sum(-1, keepdim=True) + EPS)
        first = u[..., : len(layout.sizes)]
        shifts = -first / (first.abs().sum(-1, keepdim=True) + EPS)
        return torch.cat([shift.expand(size) for shift, size in zip(shifts.split(1), layout.sizes, strict=True)])

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """The round's δ, whatever w."""
        return client.scratch["lesam_delta"]

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """w_i^old ← w^t."""
        if self.estimate == "published":
            client.state["w_old"] = client.w_global

    def aggregate(self, server: ServerRound) -> None:
        """Remember w^t."""
        if self.estimate != "published":
            server.state["w_before"] = server.w
