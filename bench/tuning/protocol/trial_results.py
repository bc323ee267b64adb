"""Trials of a search, planned and finished, and which of them is the best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

Values = dict[str, Any]
"""Values by place, such as training.lr; infinity is a text, as in a run's configuration."""

Ends = dict[str, tuple[float, float]]
"""The smallest and the largest value of a range by place."""


@dataclass(frozen=True)
class Planned:
    """A trial to be trained. `taken`: the number of the base's trial that it is; None: of none.

    `again`: the number of the trial whose values are trained with another seed; None: the values are new. `ends` are
    those of the ranges when it was planned.
    """

    stage: str
    values: Values
    ends: Ends
    taken: int | None = None
    again: int | None = None


@dataclass(frozen=True)
class TrialResult:
    """What a trial gave: accuracies in percent, None if it diverged or failed; `distance` as of the clients.

    `confirmed`: whether the accuracies are means over two training seeds.
    """

    number: int
    planned: Planned
    train_accuracy: float | None
    validation_accuracy: float | None
    fitted: bool
    distance: float | None
    confirmed: bool = False

    @property
    def rank(self) -> tuple[bool, float, int]:
        """The larger the better: fitted trials by validation accuracy, then the others by training accuracy."""
        score = self.validation_accuracy if self.fitted else self.train_accuracy
        return self.fitted, -1.0 if score is None else score, -self.number

    @property
    def values(self) -> Values:
        """Its values."""
        return self.planned.values


def distinct(results: Sequence[TrialResult]) -> list[TrialResult]:
    """One result for each trial with values of its own: of a trial that was trained again, the mean of both runs.

    It is fitted if both runs are, and failed if one of them did.
    """
    again = {result.planned.again: result for result in results if result.planned.again is not None}
    own = [result for result in results if result.planned.again is None]
    return [_mean(result, again[result.number]) if result.number in again else result for result in own]


def best(results: Sequence[TrialResult], count: int) -> list[TrialResult]:
    """The best results, the best first. One run can be lucky: see `confirmed`."""
    return sorted(distinct(results), key=lambda result: result.rank, reverse=True)[:count]


def confirmed(results: Sequence[TrialResult], count: int) -> list[TrialResult]:
    """The best results of those that were trained with two seeds, the best first."""
    return [result for result in best(results, len(results)) if result.confirmed][:count]


def unconfirmed(results: Sequence[TrialResult], count: int) -> list[TrialResult]:
    """The best results of those that were trained with one seed, the best first."""
    return [result for result in best(results, len(results)) if not result.confirmed][:count]


def _mean(first: TrialResult, second: TrialResult) -> TrialResult:
    return replace(
        first,
        train_accuracy=_mean_of(first.train_accuracy, second.train_accuracy),
        validation_accuracy=_mean_of(first.validation_accuracy, second.validation_accuracy),
        fitted=first.fitted and second.fitted,
        confirmed=True,
    )


def _mean_of(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else (first + second) / 2
