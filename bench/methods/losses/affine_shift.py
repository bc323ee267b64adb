"""FedRobust: the loss under the client's worst affine shift of its inputs (Reisizadeh et al., NeurIPS 2020).

    f_i(w, ψ; ξ) = ℓ(w; Λx + δ) − λ₁ ‖Λ − I‖² − λ₂ ‖δ‖²,   ψ = (Λ, δ)
    ψ ← ψ + η_ψ ∇_ψ f_i       at each local step, from the same backward pass as ∇_w f_i

ψ stays with the client. Inputs are shifted after normalisation and augmentation; evaluation is on clean inputs.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bench.engine.objective import Objective, cross_entropy
from bench.methods.base import ClientRound, Loss


class AffineShift(Loss):
    """max over ψ of f_i, one ascent step per local step."""

    name: ClassVar[str] = "affine_shift"

    eta_psi: float = Field(default=0.01, ge=0, description="ascent step of the input shift")
    lam_1: float = Field(default=1.0, ge=0, description="penalty on Λ − I")
    lam_2: float = Field(default=1.0, ge=0, description="penalty on δ")
    affine: Literal["channel", "full"] = Field(
        default="channel", description="Λ mixes the channels of an image, or all numbers (vectors: always full)"
    )

    def start(self, client: ClientRound) -> None:
        """ψ where the client left it."""
        client.scratch.update({name: client.state[name] for name in ("Lambda", "delta") if name in client.state})

    def gradient(
        self, objective: Objective, w: Tensor, x: Tensor, y: Tensor, client: ClientRound
    ) -> tuple[Tensor, Tensor]:
        """∇_w f_i and ℓ at the shifted inputs; ∇_ψ f_i is kept for the end of the step."""
        mixed = x if self.affine == "channel" and x.ndim > 2 else x.flatten(1)
        if "Lambda" not in client.scratch:
            client.scratch["Lambda"] = torch.eye(mixed.shape[1], dtype=x.dtype, device=x.device)
            client.scratch["delta"] = torch.zeros_like(mixed[0])
        Lambda = client.scratch["Lambda"].detach().requires_grad_()
        delta = client.scratch["delta"].detach().requires_grad_()

        def shifted_loss(module: nn.Module, _x: Tensor, y: Tensor) -> Tensor:
            moved = torch.einsum("dc,bc...->bd...", Lambda, mixed) + delta
            return cross_entropy(module, moved.view(x.shape), y)

        g, loss, (g_Lambda, g_delta) = objective.gradients(w, x, y, shifted_loss, (Lambda, delta))
        identity = torch.eye(len(Lambda), dtype=x.dtype, device=x.device)
        client.scratch["g_Lambda"] = g_Lambda - 2 * self.lam_1 * (Lambda.detach() - identity)
        client.scratch["g_delta"] = g_delta - 2 * self.lam_2 * delta.detach()
        return g, loss

    def step_taken(self, client: ClientRound) -> None:
        """ψ ← ψ + η_ψ ∇_ψ f_i, from the step's last gradient; neither clipped nor decayed."""
        for name in ("Lambda", "delta"):
            client.scratch[name] = client.scratch[name] + self.eta_psi * client.scratch[f"g_{name}"]

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Keep ψ."""
        client.state["Lambda"] = client.scratch["Lambda"]
        client.state["delta"] = client.scratch["delta"]
