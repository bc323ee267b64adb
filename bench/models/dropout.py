"""Dropout whose masks are keyed draws: the same for all passes of one local step, after a restart, and in any order."""

import torch
from torch import Tensor, nn

from bench.errors import UserError


class Dropout(nn.Module):
    """Each number is kept with probability 1 − `rate`, and then divided by it; else it is zero.

    Masks come from `generator`, which the engine lends to the module and seeds anew before every gradient. Without one,
    and in evaluation, nothing is dropped. A CPU and a GPU draw different masks from one seed.
    """

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise UserError(f"dropout rate {rate} is not allowed (allowed: 0 to below 1)")
        self.rate = rate
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x `[...]` with zeros."""
        if self.rate == 0 or self.generator is None or not self.training:
            return x
        keep = 1 - self.rate
        # Twice as fast as bernoulli_ on a CPU; one format of draws, so that a run in float64 has the same masks.
        drawn = torch.rand(x.shape, generator=self.generator, dtype=torch.float32, device=x.device)
        return x * (drawn < keep).to(x.dtype).div_(keep)

    def extra_repr(self) -> str:
        """As nn.Dropout shows its rate."""
        return f"rate={self.rate}"
