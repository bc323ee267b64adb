"""The step schedule: the value is multiplied by the same factor after some of the rounds."""

import math
from typing import Literal

from pydantic import Field, model_validator

from fedflat.bench.input.bounds import MOST_ENTRIES, Count
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.schedules.base import Schedule


class Step(Schedule):
    """γ^n, where n steps were taken before round t: as `MultiStepLR`, or, with `every`, `StepLR` of torch.optim."""

    name: Literal["step"] = "step"
    by: float = Field(default=0.1, gt=0, description="factor γ of each step")
    after: tuple[Count, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_ENTRIES,
        examples=[[50, 75]],
        description="numbers of finished rounds",
    )
    every: Count | None = Field(default=None, examples=[30], description="rounds between two steps, in place of after")

    @model_validator(mode="after")
    def _one_rule(self) -> "Step":
        if (self.after is None) == (self.every is None):
            raise UserError(
                "a step schedule needs after (numbers of finished rounds, such as [50, 75]) or every (rounds between "
                "two steps), and not both"
            )
        if self.after is not None and list(self.after) != sorted(set(self.after)):
            raise UserError(f"after = {list(self.after)} (allowed: growing numbers of rounds, such as [50, 75])")
        return self

    def factor(self, t: int, rounds: int) -> float:
        """γ^n; infinity if no number is as large, which no value allows."""
        steps = t // self.every if self.every is not None else sum(t >= done for done in self.after or ())
        try:
            return float(self.by**steps)
        except OverflowError:
            return math.inf
