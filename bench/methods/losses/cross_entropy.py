"""Mean cross-entropy, the loss of nearly all methods."""

from typing import ClassVar

from torch import Tensor

from bench.engine.objective import Objective
from bench.methods.base import ClientRound, Loss


class CrossEntropy(Loss):
    """F_i(w; ξ) = ℓ(w; ξ)."""

    name: ClassVar[str] = "cross_entropy"

    def gradient(
        self, objective: Objective, w: Tensor, x: Tensor, y: Tensor, client: ClientRound
    ) -> tuple[Tensor, Tensor]:
        """∇ℓ(w; ξ) and ℓ(w; ξ)."""
        return objective.gradient(w, x, y)
