"""The cosine schedule (Loshchilov, Hutter: SGDR, ICLR 2017), without restarts, over rounds."""

import math
from typing import Literal

from pydantic import Field

from fedflat.bench.input.bounds import Count
from fedflat.bench.methods.schedules.base import Schedule


class Cosine(Schedule):
    """e + (1−e) (1 + cos(π t/T))/2: `CosineAnnealingLR` of torch.optim, with one step per round.

    T are all rounds, or those after a warm-up. The factor of the last round is thus a little above e.
    """

    name: Literal["cosine"] = "cosine"
    end: float = Field(default=0.0, ge=0, description="factor e that it approaches")
    rounds: Count | None = Field(
        default=None, examples=[500], description="rounds T after which it stays at e; null: all rounds"
    )

    def factor(self, t: int, rounds: int) -> float:
        """The factor."""
        within = self.rounds or rounds
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * min(t, within) / within)) / 2
