"""Mean cross-entropy, the loss of all methods except FedRCL and FedRobust."""

from typing import ClassVar

from torch import Tensor

from fedflat.bench.methods.base import Loss
from fedflat.bench.models.network import Network, Variables, cross_entropy


class CrossEntropy(Loss):
    """F_i(w; ξ) = ℓ(w; ξ)."""

    name: ClassVar[str] = "cross_entropy"
    weighted_by_samples: ClassVar[bool] = True

    def value(self, model: Network, x: Tensor, y: Tensor, weights: Tensor | None, variables: Variables) -> Tensor:
        """ℓ(w; ξ)."""
        return cross_entropy(model(x), y, weights)
