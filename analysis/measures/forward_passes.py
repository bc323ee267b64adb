"""Forward passes in bf16, some of which are repeated in fp32 to show how far the results differ."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf, isfinite, isnan
from typing import Literal, Protocol

from torch import Tensor

from fedflat.analysis.measures.landscape import Score
from fedflat.bench.engine.objective import Batched, Objective

ForwardPrecision = Literal["fp32", "bf16"]
"""As `training.precision`."""
CHECKED = 5
"""Number of points whose scores are computed in fp32, too."""
DIFFERENCES = ("checked", "loss_difference", "relative_loss_difference", "error_difference")
"""Columns of tidy files computed in bf16: the number of points that were also computed in fp32, and the largest
differences there: of the loss, of the loss relative to that in fp32, and of the error in percentage points."""


class Losses(Protocol):
    """What computes losses: an `Objective`, or `ForwardPasses`."""

    def loss(self, w: Tensor, data: Batched) -> float:
        """F(w): mean cross-entropy over all of the data, w `[P]`."""
        ...


@contextmanager
def forward_precision(objective: Objective, precision: ForwardPrecision) -> Iterator[None]:
    """In the block, the objective computes in this precision."""
    before, objective.precision = objective.precision, precision
    try:
        yield
    finally:
        objective.precision = before


def spread(count: int) -> list[int]:
    """At most `CHECKED` of the numbers 0, ..., count − 1, equally spaced, the first and the last among them."""
    return sorted({round(i * (count - 1) / (CHECKED - 1)) for i in range(CHECKED)}) if count else []


def differences(found: Sequence[Score], exact: Sequence[Score]) -> dict[str, float]:
    """The values of `DIFFERENCES` for scores in bf16 and in fp32 of the same points; infinite if only one is finite."""
    losses = [(_gap(bf16.loss, fp32.loss), abs(fp32.loss)) for bf16, fp32 in zip(found, exact, strict=True)]
    largest = max(gap for gap, _ in losses)
    relative = max(0.0 if gap == 0 else inf if loss == 0 or gap == inf else gap / loss for gap, loss in losses)
    error = max(_gap(bf16.error, fp32.error) for bf16, fp32 in zip(found, exact, strict=True))
    return dict(zip(DIFFERENCES, (len(losses), largest, relative, error), strict=True))


def _gap(one: float, other: float) -> float:
    """|one − other|; infinite if only one is finite, 0 if both are equal or not a number."""
    if one == other or (isnan(one) and isnan(other)):
        return 0.0
    return abs(one - other) if isfinite(one) and isfinite(other) else inf


class ForwardPasses:
    """Losses and accuracies of `count` models in a precision; with bf16, those of `spread(count)` in fp32, too."""

    def __init__(self, objective: Objective, precision: ForwardPrecision, count: int) -> None:
        self._objective = objective
        self._precision = precision
        self._checked = spread(count) if precision == "bf16" else []
        self._calls = 0
        self._found: list[Score] = []
        self._exact: list[Score] = []

    def evaluate(self, w: Tensor, data: Batched) -> tuple[float, float]:
        """Mean cross-entropy over all of the data, and accuracy in percent, at w `[P]`."""
        with forward_precision(self._objective, self._precision):
            loss, accuracy = self._objective.evaluate(w, data)
        if self._calls in self._checked:
            self._found.append(Score(loss, 100 - accuracy))
            exact, of_fp32 = self._objective.evaluate(w, data)
            self._exact.append(Score(exact, 100 - of_fp32))
        self._calls += 1
        return loss, accuracy

    def loss(self, w: Tensor, data: Batched) -> float:
        """F(w): mean cross-entropy over all of the data."""
        return self.evaluate(w, data)[0]

    @property
    def differences(self) -> dict[str, float]:
        """The values of `DIFFERENCES`; empty for fp32."""
        return differences(self._found, self._exact) if self._found else {}
