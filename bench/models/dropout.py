"""Dropout whose masks are keyed draws: the same for all passes of one local step, after a restart, and in any order."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from bench.input.errors import UserError


class Draws(Protocol):
    """Where a model's dropout layers take their random numbers from, one layer after the other."""

    def restart(self) -> None:
        """Before each gradient: the same numbers again."""
        ...

    def uniform(self, x: Tensor) -> Tensor:
        """Numbers in [0, 1), of x's shape and on its device, in float32."""
        ...


class KeyedDraws:
    """From a generator that every restart seeds with `seed()`. A CPU and a GPU draw different numbers from one seed."""

    def __init__(self, seed: Callable[[], int], device: torch.device) -> None:
        self._seed = seed
        self._generator = torch.Generator(device)

    def restart(self) -> None:
        """Seed the generator."""
        self._generator.manual_seed(self._seed())

    def uniform(self, x: Tensor) -> Tensor:
        """In one format whatever x's, so that a run in float64 has the same masks; twice as fast as bernoulli_."""
        return torch.rand(x.shape, generator=self._generator, dtype=torch.float32, device=x.device)


class GivenDraws:
    """From tensors that were drawn before, one for each layer in the order of use."""

    def __init__(self, drawn: Sequence[Tensor]) -> None:
        self._drawn = drawn
        self._next = 0

    def restart(self) -> None:
        """From the first layer on."""
        self._next = 0

    def uniform(self, x: Tensor) -> Tensor:
        """The next layer's."""
        self._next += 1
        return self._drawn[self._next - 1]


class Dropout(nn.Module):
    """Each number is kept with probability 1 − `rate`, and then divided by it; else it is zero.

    Masks come from `draws`, which the engine lends to the module. Without them, and in evaluation, nothing is dropped.
    """

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise UserError(f"dropout rate {rate} is not allowed (allowed: 0 to below 1)")
        self.rate = rate
        self.draws: Draws | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x `[...]` with zeros."""
        if self.rate == 0 or self.draws is None or not self.training:
            return x
        keep = 1 - self.rate
        return x * ((self.draws.uniform(x) < keep).to(x.dtype) / keep)

    def extra_repr(self) -> str:
        """As nn.Dropout shows its rate."""
        return f"rate={self.rate}"
