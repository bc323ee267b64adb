"""TOGA: SAM with a multiple of the last global update A in its ascent direction (FedTOGA, Alg. 1).

δ = ρ unit(r),   r = g₁ + κA                (`local`)
                 r = g′ + κA                (`neighbour`: g′ is the perturbed gradient of the previous step)
                 r = g₁ + g′ + κA           (`fusion`)
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, along, plus
from fedflat.bench.methods.common.last_update import UsesLastUpdate
from fedflat.bench.methods.marks import Neutral, Radius, Scheduled, Search


class TOGA(UsesLastUpdate, Perturbation):
    """δ = ρ unit(r). Two gradients per step, one with `neighbour`. g′ = 0 in the first step of a round."""

    name: ClassVar[str] = "toga"

    rho: Annotated[float, Neutral(0), Radius(), Scheduled(), Search(low=0.001, high=0.5, log=True)] = Field(
        ge=0, description="perturbation radius", examples=[0.1]
    )
    kappa: Annotated[float, Neutral(0, base="sam"), Search(low=1, high=4, log=True)] = Field(
        ge=0, description="weight of A in the perturbation", examples=[1.0]
    )
    direction: Literal["local", "neighbour", "fusion"] = Field(
        default="local", description="the gradients that A is added to: this step's, the previous step's, or both"
    )

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """ρ unit(r)."""
        r = torch.zeros_like(w) if self.direction == "neighbour" else gradient(w)
        if self.direction != "local" and "neighbour" in client.scratch:
            r = r + client.scratch["neighbour"]
        return along(plus(r, client.received["A"], self.kappa), self.rho)

    def gradient(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """∇F_i(w + δ), which is g′ in the next step."""
        client.scratch["neighbour"] = super().gradient(w, gradient, client)
        return client.scratch["neighbour"]
