"""FedRobust: the loss for the worst affine shift of a client's inputs (Reisizadeh et al., NeurIPS 2020).

    f_i(w, ψ; ξ) = ℓ(w; Λx + δ) − λ₁ ‖Λ − I‖² − λ₂ ‖δ‖²,   ψ = (Λ, δ)
    ψ ← ψ + η_ψ ∇_ψ f_i       at each local step, in the same backward pass as ∇_w f_i

Each client stores its own ψ. Inputs are shifted after normalisation and augmentation. Evaluation uses clean inputs.
"""

from math import prod
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Loss
from fedflat.bench.methods.marks import Neutral, Search
from fedflat.bench.models.network import Network, Variables, cross_entropy


class AffineShift(Loss):
    """max over ψ of f_i, one ascent step per local step."""

    name: ClassVar[str] = "affine_shift"
    variables: ClassVar[tuple[str, ...]] = ("Lambda", "delta")
    moves_inputs: ClassVar[bool] = True

    eta_psi: Annotated[float, Neutral(0), Search(low=0.001, high=0.1, log=True)] = Field(
        default=0.01, ge=0, description="learning rate of the input shift"
    )
    lam_1: float = Field(default=1.0, ge=0, description="penalty on Λ − I")
    lam_2: float = Field(default=1.0, ge=0, description="penalty on δ")
    affine: Literal["channel", "full"] = Field(
        default="channel",
        description="Λ mixes the channels of an image, or all of its numbers (for vectors: always full)",
    )

    def start(self, client: ClientRound) -> None:
        """ψ as the client stored it; at first Λ = I and δ = 0."""
        w, size = client.w_global, client.input_shape
        if self.affine == "full" or len(size) == 1:
            size = (prod(size),)
        first = {"Lambda": torch.eye(size[0], dtype=w.dtype, device=w.device), "delta": w.new_zeros(size)}
        client.scratch.update({name: client.state.get(name, value) for name, value in first.items()})

    def value(self, model: Network, x: Tensor, y: Tensor, weights: Tensor | None, variables: Variables) -> Tensor:
        """ℓ at the shifted inputs. The penalties do not depend on w and are left out."""
        Lambda, delta = variables["Lambda"], variables["delta"]
        mixed = x.flatten(1 if delta.ndim == 1 else 2)
        moved = mixed @ Lambda.T + delta if delta.ndim == 1 else Lambda @ mixed + delta.flatten(1)
        return cross_entropy(model(moved.view(x.shape)), y, weights)

    def step_taken(self, client: ClientRound) -> None:
        """ψ ← ψ + η_ψ ∇_ψ f_i, without clipping and weight decay."""
        Lambda, delta, scratch = client.scratch["Lambda"], client.scratch["delta"], client.scratch
        identity = torch.eye(Lambda.shape[-1], dtype=Lambda.dtype, device=Lambda.device)
        scratch["Lambda"] = Lambda + self.eta_psi * (scratch["g_Lambda"] - 2 * self.lam_1 * (Lambda - identity))
        scratch["delta"] = delta + self.eta_psi * (scratch["g_delta"] - 2 * self.lam_2 * delta)

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Stores ψ."""
        client.state["Lambda"] = client.scratch["Lambda"]
        client.state["delta"] = client.scratch["delta"]
