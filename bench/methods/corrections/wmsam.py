"""FedWMSAM's correction: FedCM's momentum with SCAFFOLD's control variates, and an adaptive mixture (Li et al., NeurIPS
2025; signs of D, c and α as in the released code, because the printed ones would make the server climb).

    P_i = D + α/(1−α) ω_c (c − c_i);     q = α g + (1−α) P_i
    c_i⁺ = c_i − c − Δ_i/Σ_k η_{t,k};    c ← c + (1/N) Σ_{i∈S} (c_i⁺ − c_i);     D ← −Σ p_i Δ_i/Σ_k η_{t,k}
    α ← (1−λ) α + λ min(max((1/M) Σ v_i, α_min), α_max)
    v_i = 1 + cos(Δ_i, D)     (`alpha_rule: opposition`, as released)
    v_i = cos(Δ_i, −D)        (`agreement`)
    v_i = cos(P_i, D)         (`personal`)

ω_c is `correction_weight`, λ `alpha_rate`. A cosine with a zero vector is 0, and then so is v_i with `opposition`. D
points uphill: q = α (g + ω_c (c − c_i)) + (1−α) D.

Clients receive three models, w^t, D and c, and send one. Two, w^t and D + α/(1−α) ω_c c, would suffice only if the
server stored all c_i: a client needs c itself for c_i⁺, and D itself for v_i. c is sent with ω_c = 0, too.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import ClientRound, Correction, ServerRound, norm
from fedflat.bench.methods.marks import Search


class WeightedMomentum(Correction):
    """q = α g + (1−α) P_i. P_i is constant during a round. At any time c is the mean of the c_i of all N clients."""

    name: ClassVar[str] = "fedwmsam"
    client_state: ClassVar[tuple[str, ...]] = ("c_i",)
    server_state: ClassVar[tuple[str, ...]] = ("D", "c")

    alpha: Annotated[float, Search(low=0.01, high=0.9, log=True)] = Field(
        gt=0, lt=1, examples=[0.3], description="weight α of the client's own gradient in round 0"
    )
    alpha_rate: Annotated[float, Search(low=0.001, high=0.1, log=True)] = Field(
        default=0.01, ge=0, le=1, description="λ: speed at which α follows the alignment; 0: α is constant"
    )
    alpha_min: float = Field(default=0.1, ge=0, lt=1, description="lower bound of what α follows")
    alpha_max: float = Field(default=0.9, ge=0, lt=1, description="upper bound of what α follows")
    correction_weight: float = Field(default=1.0, ge=0, description="ω_c: weight of c − c_i in P_i")
    alpha_rule: Literal["opposition", "agreement", "personal"] = Field(
        default="opposition",
        description="α grows if updates oppose the last movement, or agree with it, or with P_i's agreement with D",
    )

    @model_validator(mode="after")
    def _ordered(self) -> "WeightedMomentum":
        if self.alpha_min > self.alpha_max:
            raise UserError(f"alpha_min = {self.alpha_min:g} is above alpha_max = {self.alpha_max:g}")
        return self

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """D = c = 0, and α."""
        return {**super().start_server(w0), "alpha": w0.new_full((), self.alpha)}

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """D, under the name `direction`; c, under the name `control`; and α."""
        return {"direction": state["D"], "control": state["c"], "alpha": state["alpha"]}

    def start(self, client: ClientRound) -> None:
        """P_i."""
        alpha, D = client.received["alpha"], client.received["direction"]
        control = client.received["control"] - client.state["c_i"]
        client.scratch["P"] = D + alpha / (1 - alpha) * self.correction_weight * control

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """α g + (1−α) P_i."""
        return torch.lerp(client.scratch["P"], g, client.received["alpha"])

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Stores c_i⁺ and sends v_i, one number."""
        update = w - client.w_global
        client.upload["v"] = self.alignment(update, client)
        client.state["c_i"] = client.state["c_i"] - client.received["control"] - update / client.rate_sum

    def alignment(self, update: Tensor, client: ClientRound) -> Tensor:
        """v_i."""
        D = client.received["direction"]
        if self.alpha_rule == "personal":
            return cosine(client.scratch["P"], D)
        along_D = cosine(update, D)
        if self.alpha_rule == "agreement":
            return -along_D
        return torch.where(norm(update) * norm(D) > 0, 1 + along_D, along_D)

    def aggregate(self, server: ServerRound) -> None:
        """The new α, c and D. The sum in c needs no upload: c_i⁺ − c_i = −c − Δ_i/Σ_k η_{t,k}."""
        state = server.state
        target = server.uploads["v"].mean().clamp(self.alpha_min, self.alpha_max)
        change = len(server.updates) * state["c"] + (1 / server.full_rate_steps) @ server.updates / server.lr
        state["alpha"] = (1 - self.alpha_rate) * state["alpha"] + self.alpha_rate * target
        state["c"] = state["c"] - change / server.n_clients
        state["D"] = server.mean_direction


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of the angle between two vectors, with size 1 in the last dimension; 0 if one of them is zero."""
    lengths = norm(a) * norm(b)
    return torch.where(lengths > 0, (a * b).sum(-1, keepdim=True) / lengths.where(lengths > 0, 1), 0)
