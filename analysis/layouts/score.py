"""The score of an experiment's data sets in layouts that suit any of them: accuracy, or mean IoU for segmentation."""

from typing import Any

from fedflat.bench.data.sources import parse_source
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics import METRICS

SCORE = "test_score"
"""The metric that stands for test_accuracy or test_miou."""


def with_score(content: Any, experiment: Experiment, part: str | None = None) -> Any:
    """The content of a layout with test_accuracy or test_miou for `test_score`, and its name for {score} and {Score}.

    `part`: the label of the only part that is shown. A `UserError` if the parts have different scores.
    """
    if isinstance(content, dict):
        return {key: with_score(value, experiment, part) for key, value in content.items()}
    if isinstance(content, list):
        return [with_score(value, experiment, part) for value in content]
    if content == SCORE:
        return f"test_{_score(experiment, part)}"
    if isinstance(content, str) and "{score}" in content.lower():
        metric = METRICS[_score(experiment, part)]
        content = content.replace("{score}", metric.title).replace("{Score}", metric.heading())
    return content


def _score(experiment: Experiment, part: str | None) -> str:
    parts = experiment.resolved_parts
    shown = parts if part is None else {part: parts[part]}
    scores = {label: parse_source(one.dataset).score for label, one in shown.items()}
    if len(set(scores.values())) > 1:
        found = ", ".join(f"{label}: test_{score}" for label, score in scores.items())
        raise UserError(f"metric {SCORE} differs between the parts of experiment {experiment.name} ({found})")
    return next(iter(scores.values()))
