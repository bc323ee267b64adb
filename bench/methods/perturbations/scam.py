"""FedSCAM: a client's radius and weight shrink with its gradient norm, and follow its alignment (Rahil et al., 2025).

    before the first local step, at w^t, on the first B mini-batches of the round:
        h_i = mean of ‖∇F_i(w^t; ξ_b)‖;     s_i = −unit(∇F_i(w^t; ξ_B));     a_i = ⟨s_i, u⟩
        h′_i = h_i max(0, 1 − κ a_i);       r_i = ρ/(1 + α_r h′_i)
    δ = r_i unit(g₁),   g₁ = ∇F_i(w; ξ)
    P_i ∝ p_i max(0, 1 + α_a a_i)/(1 + α_w h′_i), with sum 1, and p_i if all are zero
    w^{t+1} = w^t + η_g Σ P_i Δ_i;     u ← unit(Σ P_i Δ_i)

B is `pilot_batches` (at most K_i are used), α_r `radius_damping`, α_w `weight_damping`, α_a `alignment`. The gradients
at w^t are neither clipped nor decayed, and no step is taken. In round 0 u = 0, so a_i = 0. No released code is known;
the equations are those of a restatement. The paper allows a gradient or a step as s_i, which have opposite signs:
`pilot: gradient` is s_i = +unit(...). Its random projection and its clustering are left out.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.input.bounds import Count
from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, ServerRound, along, at_most, norm, unit
from fedflat.bench.methods.marks import Neutral, Scheduled, Search


class PilotSAM(Perturbation):
    """δ = r_i unit(g₁). Two gradients per step, and B per round."""

    name: ClassVar[str] = "fedscam"
    weighted_by_samples: ClassVar[bool] = True
    server_state: ClassVar[tuple[str, ...]] = ("u",)
    takes_mini_batch_gradient: ClassVar[bool] = True

    rho: Annotated[
        float,
        Neutral(0, given={"weight_damping": 0, "alignment": 0}),
        Scheduled(),
        Search(low=0.001, high=0.5, log=True),
    ] = Field(ge=0, examples=[0.1], description="the largest radius")
    radius_damping: Annotated[
        float, Neutral(0, base="sam", given={"weight_damping": 0, "alignment": 0}), Search(low=0.1, high=10, log=True)
    ] = Field(default=1.0, ge=0, description="α_r: how much h′_i shrinks the radius")
    weight_damping: Annotated[float, Search(values=(0.0, 1.0, 5.0))] = Field(
        default=1.0, ge=0, description="α_w: how much h′_i shrinks the weight"
    )
    alignment: Annotated[float, Search(values=(0.0, 0.8, 2.0))] = Field(
        default=0.8, ge=0, description="α_a: how much alignment raises the weight"
    )
    kappa: float = Field(default=1.0, ge=0, description="κ: how much alignment lowers h′_i")
    pilot: Literal["descent", "gradient"] = Field(
        default="descent", description="s_i is the direction of descent, or that of the gradient"
    )
    pilot_batches: Count = Field(default=3, description="B, the number of mini-batches at w^t")

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """u, under the name `last_direction`."""
        return {"last_direction": state["u"]}

    def start(self, client: ClientRound) -> None:
        """h′_i, a_i and r_i."""
        w = client.w_global
        lengths, last = torch.zeros_like(w[:1]), torch.zeros_like(w)
        for step in range(self.pilot_batches):
            g = client.mini_batch_gradient(w, step)  # zero if the client has fewer steps
            lengths = lengths + norm(g)
            last = torch.where(norm(g) > 0, g, last)
        h = lengths / at_most(client.steps, self.pilot_batches)
        s = unit(last) if self.pilot == "gradient" else -unit(last)
        a = (s * client.received["last_direction"]).sum(-1, keepdim=True)
        score = h * (1 - self.kappa * a).clamp(min=0)
        client.upload["score"], client.upload["alignment"] = score, a
        client.scratch["radius"] = self.rho / (1 + self.radius_damping * score)

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """r_i unit(g₁)."""
        return along(gradient(w), client.scratch["radius"])

    def client_weights(self, server: ServerRound) -> Tensor:
        """P_i."""
        score, a = server.uploads["score"][:, 0], server.uploads["alignment"][:, 0]
        P = server.weights * (1 + self.alignment * a).clamp(min=0) / (1 + self.weight_damping * score)
        total = P.sum()
        return torch.where(total > 0, P / total, server.weights)

    def aggregate(self, server: ServerRound) -> None:
        """The new u."""
        server.state["u"] = unit(server.mean_update)
