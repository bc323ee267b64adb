"""Metrics of a model on samples that come in batches; metrics that keep the same of a batch share it."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from torch import Tensor

from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.base import NO_CLIENTS, Floats, Metric, Seen

Model = Callable[[Tensor], Tensor]
Samples = Iterable[tuple[Tensor, Tensor]]


def evaluate(model: Model, data: Samples, metrics: Sequence[Metric], shares: Floats = NO_CLIENTS) -> dict[str, float]:
    """Each metric by name, of a model that gives the scores of a batch; `shares` as for `Metric.value`."""
    return evaluate_parts(model, {"": data}, metrics, shares)


def evaluate_parts(
    model: Model,
    parts: Mapping[str, Samples],
    metrics: Sequence[Metric],
    shares: Floats = NO_CLIENTS,
    of_parts: str | None = None,
) -> dict[str, float]:
    """Each metric by name, of the samples of all parts together.

    If there are several parts, also the metric named `of_parts` for each of them, such as miou_seen.
    """
    found = {part: _seen(model, data, metrics) for part, data in parts.items()}
    first, *others = found.values()
    values = _values(functools.reduce(lambda a, b: _together(a, b, metrics), others, first), metrics, shares)
    if len(found) > 1:
        own = [metric for metric in metrics if metric.name == of_parts]
        values |= {
            f"{name}_{part}": value for part, one in found.items() for name, value in _values(one, own, shares).items()
        }
    return values


def names(metrics: Iterable[Metric], parts: Sequence[str] = (), of_parts: str | None = None) -> list[str]:
    """The names of the values of `evaluate_parts`."""
    return [*(metric.name for metric in metrics), *(f"{of_parts}_{part}" for part in parts if len(parts) > 1)]


OfBatch = Callable[[Tensor, Tensor], Seen]
Kept = tuple[dict[OfBatch, Seen], int]
"""What is kept of batches, by the function that gives it of one, and the number of samples."""


def _seen(model: Model, data: Samples, metrics: Sequence[Metric]) -> Kept:
    kinds: dict[OfBatch, None] = {metric.of_batch: None for metric in metrics}
    kept: Kept = {}, 0
    for x, y in data:
        scores = model(x)
        batch: Kept = {of_batch: of_batch(scores, y) for of_batch in kinds}, len(y)
        kept = _together(kept, batch, metrics) if kept[0] else batch
    return kept


def _together(one: Kept, other: Kept, metrics: Iterable[Metric]) -> Kept:
    (seen, samples), (further, more) = one, other
    kinds: dict[OfBatch, Callable[[Seen, Seen], Seen]] = {metric.of_batch: metric.joined for metric in metrics}
    return {of_batch: kinds[of_batch](kept, further[of_batch]) for of_batch, kept in seen.items()}, samples + more


def _values(kept: Kept, metrics: Iterable[Metric], shares: Floats) -> dict[str, float]:
    seen, samples = kept
    return {metric.name: _number(metric, metric.value(seen[metric.of_batch], samples, shares)) for metric in metrics}


def _number(metric: Metric, value: object) -> float:
    """The value of a metric; a `UserError` if that of a user is no number."""
    try:
        return float(value)  # type: ignore[arg-type]  # that is what is tried
    except (TypeError, ValueError, RuntimeError):  # the last one of tensors with several values
        raise UserError(
            f"the metric '{metric.name}' returns {type(value).__name__}, which is no number (allowed: such as 0.5)"
        ) from None
