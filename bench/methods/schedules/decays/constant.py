"""The constant schedule: 1 in all rounds."""

from typing import Literal

from fedflat.bench.methods.schedules.base import Schedule


class Constant(Schedule):
    """The value does not change."""

    name: Literal["constant"] = "constant"

    def factor(self, t: int, rounds: int) -> float:
        """1."""
        return 1.0
