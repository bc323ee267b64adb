"""DP-FedSAM's upload: a clipped update with Gaussian noise (Shi et al., CVPR 2023).

    U_i = Δ_i min(1, C/‖Δ_i‖);     V_i = U_i + (σ C/√M) z_i,   z_i standard normal
    clients send w^t + V_i;        w^{t+1} = w^t + η_g Σ p_i V_i

C is `dp_clip`, σ `dp_noise`. z_i is drawn from the stream `dp_noise` of seed, round and client. The norm is that of the
whole update; the released code clips each tensor by itself (`clip_scope: tensor`).

There is no privacy accountant: FedFlat does not compute the ε that these values guarantee. Only uniform weights p_i
have the paper's sensitivity C/M. `training.clip` is another bound, on the direction of each local step. Buffers of a
model are neither clipped nor noised, nor are the further uploads of other components, such as FedSCAM's scores. All
that the server computes from updates, such as FedTOGA's last update, it computes from V_i.
"""

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import ClientRound, Correction, norm
from fedflat.bench.methods.marks import Neutral, Search

NOISE = "dp_noise"
"""Name of the stream."""


class ClippedNoise(Correction):
    """q = g; the client sends w^t + V_i."""

    name: ClassVar[str] = "dp_fedsam"
    weighted_by_samples: ClassVar[bool] = True

    dp_clip: Annotated[float, Neutral("infinity", given={"dp_noise": 0}), Search(low=0.05, high=2, log=True)] = Field(
        gt=0, allow_inf_nan=True, examples=[0.2], description="bound C on the norm of the update"
    )
    dp_noise: float = Field(default=0.0, ge=0, description="noise multiplier σ")
    clip_scope: Literal["model", "tensor"] = Field(
        default="model", description="what the bound applies to: the whole update, or each tensor of the model"
    )

    @model_validator(mode="after")
    def _finite_noise(self) -> "ClippedNoise":
        if math.isnan(self.dp_clip):
            raise UserError("dp_clip = nan (allowed: a number above 0, or infinity)")
        if math.isinf(self.dp_clip) and self.dp_noise > 0:
            raise UserError("dp_noise > 0 needs a finite dp_clip, because the noise is a multiple of it")
        return self

    def noises(self) -> tuple[str, ...]:
        """z_i, if there is noise."""
        return (NOISE,) if self.dp_noise > 0 else ()

    def clipped(self, update: Tensor, client: ClientRound) -> Tensor:
        """U_i."""
        if self.clip_scope == "model":
            return update * self.shrinking(update)
        tensors = update.split(client.layout.sizes, dim=-1)
        return torch.cat([tensor * self.shrinking(tensor) for tensor in tensors], dim=-1)

    def shrinking(self, v: Tensor) -> Tensor:
        """min(1, C/‖v‖)."""
        return (self.dp_clip / norm(v)).clamp(max=1)

    def uploaded_model(self, w: Tensor, client: ClientRound) -> Tensor:
        """w^t + V_i."""
        V = self.clipped(w - client.w_global, client)
        if self.dp_noise > 0:
            V = V + self.dp_noise * self.dp_clip / client.participants**0.5 * client.noise[NOISE]
        return client.w_global + V
