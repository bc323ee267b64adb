"""Dropout with repeatable masks: the same for all gradients of a local step, after a restart, and in any order."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from fedflat.bench.input.errors import UserError


class Draws(Protocol):
    """The source of random numbers for the dropout layers of a model, one layer after the other."""

    def restart(self) -> None:
        """Runs before each forward pass: from now on, `uniform` gives the same numbers again."""
        ...

    def uniform(self, x: Tensor) -> Tensor:
        """Numbers in [0, 1), of x's shape and on its device, in float32."""
        ...


class KeyedDraws:
    """Draws of a generator that `restart` seeds with `seed()`. With one seed, CPU and GPU draw different numbers."""

    def __init__(self, seed: Callable[[], int], device: torch.device) -> None:
        self._seed = seed
        self._generator = torch.Generator(device)

    def restart(self) -> None:
        """Seeds the generator."""
        self._generator.manual_seed(self._seed())

    def uniform(self, x: Tensor) -> Tensor:
        """Draws in float32 for any number format of x, so that a run in float64 has the same masks.

        torch.rand is faster than bernoulli_.
        """
        return torch.rand(x.shape, generator=self._generator, dtype=torch.float32, device=x.device)


class GivenDraws:
    """Numbers that were drawn before: one tensor for each layer, in the order of use."""

    def __init__(self, drawn: Sequence[Tensor]) -> None:
        self._drawn = drawn
        self._next = 0

    def restart(self) -> None:
        """Begins again with the first layer."""
        self._next = 0

    def uniform(self, x: Tensor) -> Tensor:
        """The numbers of the next layer."""
        self._next += 1
        return self._drawn[self._next - 1]


class Dropout(nn.Module):
    """Sets each number to zero with probability `rate`, and divides the others by 1 − `rate`.

    The engine sets `draws`, the source of the masks. Without it, and in evaluation, nothing is dropped.
    """

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise UserError(f"dropout rate {rate} is not allowed (allowed: 0 to below 1)")
        self.rate = rate
        self.draws: Draws | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x `[...]` with some numbers set to zero."""
        if self.rate == 0 or self.draws is None or not self.training:
            return x
        keep = 1 - self.rate
        return x * ((self.draws.uniform(x) < keep).to(x.dtype) / keep)

    def extra_repr(self) -> str:
        """The rate, as nn.Dropout shows it."""
        return f"rate={self.rate}"


class StochasticDepth(Dropout):
    """As Dropout, for whole samples: a residual block is skipped (Huang et al., ECCV 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        """x `[B, ...]` with some samples set to zero."""
        if self.rate == 0 or self.draws is None or not self.training:
            return x
        keep = 1 - self.rate
        mask = (self.draws.uniform(x.flatten(1)[:, 0]) < keep).to(x.dtype) / keep
        return x * mask.view(-1, *[1] * (x.ndim - 1))
