"""FedProx: a quadratic penalty on the distance from the received model (Li et al., MLSys 2020).

q = g + λ (w − w^t)
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from bench.methods.base import ClientRound, Correction


class Prox(Correction):
    """q = g + λ (w − w^t); the reference is the model as received, so FedACG's look-ahead point there."""

    name: ClassVar[str] = "prox"

    lam: float = Field(ge=0, description="multiplies the drift from the received model", examples=[0.1])

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """g + λ (w − w^t)."""
        return torch.add(g, w - client.w_global, alpha=self.lam)

    def proximal(self) -> float:
        """λ."""
        return self.lam
