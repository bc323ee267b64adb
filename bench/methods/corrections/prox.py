"""FedProx: a quadratic penalty on the distance from the received model (Li et al., MLSys 2020).

q = g + λ (w − w^t)
"""

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Correction, plus
from fedflat.bench.methods.marks import Neutral, Search


class Prox(Correction):
    """q = g + λ (w − w^t), where w^t is the model as received: with FedACG's server its look-ahead point."""

    name: ClassVar[str] = "prox"
    weighted_by_samples: ClassVar[bool] = True

    lam: Annotated[float, Neutral(0), Search(low=0.001, high=1, log=True)] = Field(
        ge=0, description="weight of the drift from the received model", examples=[0.1]
    )

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """g + λ (w − w^t)."""
        return plus(g, w - client.w_global, self.lam)

    def proximal(self) -> float:
        """λ."""
        return self.lam
