"""A linear warm-up, and the schedule that follows it."""

from typing import Annotated, Literal

from pydantic import Field

from fedflat.bench.input.bounds import Count
from fedflat.bench.input.registry import OneOf, registered
from fedflat.bench.methods.schedules.base import Schedule
from fedflat.bench.methods.schedules.decays.constant import Constant

DECAYS = registered(Schedule, "fedflat.bench.methods.schedules.decays")
"""The schedules that may follow a warm-up, by name."""


def risen(start: float, end: float, t: int, rounds: int) -> float:
    """The value in round t, counted from 0, that goes linearly from `start` to `end` within this number of rounds."""
    return start + min(t, rounds) / rounds * (end - start)


class WarmUp(Schedule):
    """s + (1−s) t/W in round t < W, then the factors of another schedule, whose first round is W."""

    name: Literal["warmup"] = "warmup"
    rounds: Count = Field(examples=[5], description="rounds W of the warm-up")
    start: float = Field(default=0.1, ge=0, description="factor s in round 0")
    then: Annotated[Schedule, OneOf(DECAYS.values(), discriminator="name")] = Field(
        default=Constant(), description="the schedule after the warm-up"
    )

    def factor(self, t: int, rounds: int) -> float:
        """The factor."""
        if t < self.rounds:
            return risen(self.start, 1.0, t, self.rounds)
        return self.then.factor(t - self.rounds, max(rounds - self.rounds, 1))
