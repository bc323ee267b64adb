"""A network as a function of its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from bench.numerics.precision import Precision, autocast


@dataclass(frozen=True)
class Network:
    """A module with given parameters (None: those of the module), as it is passed to losses."""

    module: nn.Module
    parameters: Mapping[str, Tensor] | None = None
    precision: Precision = "fp32"

    def __call__(self, x: Tensor) -> Tensor:
        """Class scores `[B, C]` of inputs x `[B, ...]`, in the number format of x, whatever the precision is."""
        with autocast(self.precision, x.device):
            scores: Tensor = (
                self.module(x) if self.parameters is None else functional_call(self.module, dict(self.parameters), (x,))
            )
        return scores.to(x.dtype)


def has_buffers(module: nn.Module) -> bool:
    """Whether a module has buffers, such as the statistics of BatchNorm."""
    return next(module.buffers(), None) is not None


Variables = Mapping[str, Tensor]
"""Tensors by name on which a loss depends in addition to the model's parameters."""


def cross_entropy(scores: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean cross-entropy of scores `[B, C]`, or the sum weighted by `weights` `[B]`.

    y are labels `[B]`, or class probabilities `[B, C]`.
    """
    if weights is None:
        return F.cross_entropy(scores, y)
    return (F.cross_entropy(scores, y, reduction="none") * weights).sum()
