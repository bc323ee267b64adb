"""FedTOGA's correction: FedDyn's direction with a share of the last global update (FedTOGA, Alg. 1).

    q = g + λ (H_i + w − w^t) + βA

The paper prints λ as 1/α with α = 0.1, but tunes α = 0.1 as a coefficient elsewhere: here λ multiplies. Its server dual
moves by 1/M of the sum of updates (`dual_norm: M`), which is undamped under partial participation; 1/N is FedDyn's.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from bench.methods.base import ClientRound
from bench.methods.corrections.dyn import DynamicRegulariser
from bench.methods.last_update import UsesLastUpdate


class CorrectedDual(UsesLastUpdate, DynamicRegulariser):
    """FedDyn's q, and βA."""

    name: ClassVar[str] = "fedtoga"

    beta: float = Field(ge=0, description="weight of A in the local direction", examples=[0.9])

    def constant_pull(self, client: ClientRound) -> Tensor:
        """λ (H_i − w^t) + βA."""
        return torch.add(super().constant_pull(client), client.received["A"], alpha=self.beta)
