"""The exponential schedule: γ^t."""

from typing import Literal

from pydantic import Field

from fedflat.bench.methods.schedules.base import Schedule


class Exponential(Schedule):
    """γ^t, as `training.lr_decay` for the local rate."""

    name: Literal["exponential"] = "exponential"
    decay: float = Field(gt=0, le=1, examples=[0.998], description="factor γ after each round")

    def factor(self, t: int, rounds: int) -> float:
        """γ^t."""
        return self.decay**t
