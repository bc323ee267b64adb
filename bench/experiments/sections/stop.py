"""When a run ends before its last round: `evaluation.until`."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field, model_validator

from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.metrics.quantity import Better

ROUNDING = 1e-9
"""By how much a value may miss its target, and still reach it."""


class Stop(Frozen):
    """A run ends at the first evaluation that reaches a value, or after evaluations without a better one."""

    in_words: ClassVar[str] = "until"

    metric: str | None = Field(
        default=None, description="a metric of the run, such as loss; null: accuracy, or mean IoU for segmentation"
    )
    value: float | None = Field(default=None, examples=[80], description="the value that ends the run; null: none")
    patience: Count | None = Field(
        default=None,
        examples=[10],
        description="evaluations in a row without a better value that end the run; null: none",
    )
    change: float = Field(
        default=0, ge=0, examples=[0.1], description="a value is better if it is so by more than this"
    )

    @model_validator(mode="after")
    def _ends(self) -> "Stop":
        if self.value is None and self.patience is None:
            raise UserError("it needs a value, or patience, such as {metric: loss, patience: 10}")
        return self

    @property
    def target(self) -> float | None:
        """The accuracy or mean IoU in percent up to which a run is trained, if only that ends it."""
        return self.value if self.metric is None and self.patience is None else None

    def is_reached(self, values: Sequence[float], better: Better) -> bool:
        """Whether a run ends after these evaluations, the last one now; NaN is never better."""
        sign = -1 if better == "lower" else 1
        gains = [sign * value for value in values]
        if self.value is not None and gains[-1] >= sign * self.value - ROUNDING:
            return True
        if self.patience is None:
            return False
        best, since = float("-inf"), 0
        for gain in gains:
            best, since = (gain, 0) if gain > best + self.change else (best, since + 1)
        return since >= self.patience
