"""A network as a function of its parameters, as losses see it."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from bench.numerics.precision import Precision, autocast


@dataclass(frozen=True)
class Network:
    """A module with certain parameters (None: its own), as losses see it."""

    module: nn.Module
    parameters: Mapping[str, Tensor] | None = None
    precision: Precision = "fp32"

    def __call__(self, x: Tensor) -> Tensor:
        """Class scores `[B, C]` of inputs x `[B, ...]`, in x's number format whatever the precision."""
        with autocast(self.precision, x.device):
            own = self.parameters is None
            scores: Tensor = self.module(x) if own else functional_call(self.module, dict(self.parameters or {}), (x,))
        return scores.to(x.dtype)


Variables = Mapping[str, Tensor]
"""What a loss depends on beside the model's parameters, by name."""


def cross_entropy(scores: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """Cross-entropy of scores `[B, C]`, in the mean or weighted by `[B]`; y are labels `[B]`, or class probabilities
    `[B, C]`."""
    if weights is None:
        return F.cross_entropy(scores, y)
    return (F.cross_entropy(scores, y, reduction="none") * weights).sum()
