"""LESAM: the perturbation of the global loss, estimated from the last two global models that a client received.

    δ = ρ unit(w_i^old − w^t), constant during the round;  then w_i^old ← w^t      (Fan et al. 2024, Alg. 1)

The released code instead sends the last server step u = w^t − w^{t−1} to all clients. For tensor j of the model:

    δ_j = −ρ u_j / Σ_l ‖u_l‖                    (`released_intent`: u_j is tensor j of u)
    δ_j = −ρ u[j] / Σ_l |u[l]|                  (`released_literal`: u[j] is the j-th number of u)
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, ServerRound, unit
from fedflat.bench.methods.common.released_directions import one_number_each, over_sum_of_norms
from fedflat.bench.methods.marks import Neutral, Scheduled, Search


class LESAM(Perturbation):
    """δ = ρ unit(w_i^old − w^t). One gradient per step. ‖δ‖ = ρ only for the published estimate."""

    name: ClassVar[str] = "lesam"

    rho: Annotated[float, Neutral(0), Scheduled(), Search(low=0.001, high=0.5, log=True)] = Field(
        ge=0, description="perturbation radius", examples=[0.1]
    )
    first_seen: Literal["zero", "none"] = Field(
        default="zero",
        description="in a client's first round: w_i^old = 0 as printed, so δ = −ρ w^t/‖w^t‖; or no perturbation",
    )
    estimate: Literal["published", "released_intent", "released_literal"] = Field(
        default="published",
        description="from the last model that the client received, or from the last server step as released",
    )

    def start_client(self, w: Tensor) -> dict[str, Tensor]:
        """w_i^old = 0, if clients store it."""
        return {"w_old": torch.zeros_like(w)} if self.estimate == "published" else {}

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """w^{t−1} = w^0, if the server sends u; so u = 0 at first."""
        return {} if self.estimate == "published" else {"w_before": w0.clone()}

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """u = w^t − w^{t−1}, if the estimate is as released."""
        return {} if self.estimate == "published" else {"last_step": w - state["w_before"]}

    def start(self, client: ClientRound) -> None:
        """δ, once per round."""
        client.scratch["lesam_delta"] = self.rho * self.estimated(client)

    def estimated(self, client: ClientRound) -> Tensor:
        """δ/ρ."""
        w, layout = client.w_global, client.layout
        if self.estimate == "published":
            last = unit(client.state["w_old"] - w)
            return last if self.first_seen == "zero" else torch.where(client.first_time, torch.zeros_like(w), last)
        u = client.received["last_step"]
        return -over_sum_of_norms(u, layout) if self.estimate == "released_intent" else -one_number_each(u, layout)

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """The δ of the round, which does not depend on w."""
        return client.scratch["lesam_delta"]

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """w_i^old ← w^t."""
        if self.estimate == "published":
            client.state["w_old"] = client.w_global

    def aggregate(self, server: ServerRound) -> None:
        """Stores w^t."""
        if self.estimate != "published":
            server.state["w_before"] = server.w
