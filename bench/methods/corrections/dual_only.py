"""FedGMT's correction: FedDyn's dual without its proximal term (Li et al., ICML 2025).

    q = g + λ H_i;     H_i ← H_i + (w_i⁺ − w^t)

The paper's u_i is −λ H_i, and its 1/β is λ. The pull towards the teacher is in losses/trajectory.py.
"""

from typing import ClassVar

from torch import Tensor

from fedflat.bench.methods.base import ClientRound, plus
from fedflat.bench.methods.corrections.dyn import DynamicRegulariser


class DualOnly(DynamicRegulariser):
    """q = g + λ H_i."""

    name: ClassVar[str] = "fedgmt"

    def start(self, client: ClientRound) -> None:
        """Nothing is prepared: the pull is a multiple of what the client stores."""

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """g + λ H_i."""
        return plus(g, client.state["H"], self.lam)

    def proximal(self) -> float:
        """0: q has no term in w."""
        return 0.0
