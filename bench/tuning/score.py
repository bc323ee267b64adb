"""The score of a trial: the value of a run that the experiment reports, measured on images that clients hold out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedflat.bench.experiments.sections.evaluation import VALIDATION, Evaluation, score_column

LAST = "last"
"""The report of an experiment that names none."""


def evaluated_rounds(report: str, evaluation: Evaluation, rounds: int, rung: int) -> list[int]:
    """The rounds whose accuracies give the score after the round `rung`.

    The last N evaluations before a rung are at the same distances from it as those of a whole run from its last round.
    """
    due = sorted(evaluation.evaluated_rounds(rounds))
    if report == "best":
        return sorted({rung, *(number for number in due if number <= rung)})
    distances = [rounds - number for number in due[-_evaluations(report) :]]
    return sorted(rung - distance for distance in distances if distance < rung)


def score(report: str, rows: Sequence[Mapping[str, Any]], rounds: Sequence[int]) -> float:
    """The score, given a run's metrics and the rounds of `evaluated_rounds`: an accuracy, or a mean IoU, in percent."""
    evaluated = [rows[number - 1] for number in rounds]
    scores = [row[score_column(row, f"{VALIDATION}_")] for row in evaluated]
    return max(scores) if report == "best" else math.fsum(scores) / len(scores)


def in_words(report: str) -> str:
    """The score in words."""
    if report == LAST:
        return "validation accuracy after the last round"
    if report == "best":
        return "best validation accuracy"
    return f"mean validation accuracy of the last {_evaluations(report)} evaluations"


def _evaluations(report: str) -> int:
    return 1 if report == LAST else int(report.removeprefix("mean_last_"))
