"""FedTOGA's correction: FedDyn's direction plus a multiple of the last global update A (FedTOGA, Alg. 1).

    q = g + λ (H_i + w − w^t) + βA

The paper prints λ as 1/α with α = 0.1, but elsewhere uses α = 0.1 as a coefficient: here λ is a coefficient. The
paper's server dual moves by 1/M of the sum of updates (`dual_norm: M`), which is undamped under partial participation;
FedDyn takes 1/N.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, plus
from fedflat.bench.methods.common.last_update import UsesLastUpdate
from fedflat.bench.methods.corrections.dyn import DynamicRegulariser
from fedflat.bench.methods.marks import Neutral, Search


class CorrectedDual(UsesLastUpdate, DynamicRegulariser):
    """q = g + λ (H_i + w − w^t) + βA."""

    name: ClassVar[str] = "fedtoga"

    beta: Annotated[float, Neutral(0, base="feddyn"), Search(low=0.8, high=0.9)] = Field(
        ge=0, description="weight of A in the local direction", examples=[0.9]
    )

    def constant_pull(self, client: ClientRound) -> Tensor:
        """λ (H_i − w^t) + βA."""
        return plus(super().constant_pull(client), client.received["A"], self.beta)
