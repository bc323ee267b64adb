"""Metrics of models on sets of samples. A new file with a class in the folder kinds is a new metric."""

from collections.abc import Iterable, Sequence

from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.registry import registered
from fedflat.bench.metrics.base import Metric

METRICS: dict[str, type[Metric]] = dict(
    sorted(registered(Metric, f"{__name__}.kinds").items(), key=lambda item: (item[1].order, item[0]))
)
"""By name, in their order."""


EVERYWHERE = tuple(name for name, kind in METRICS.items() if kind.in_every_run and kind.label_maps is None)
"""The metrics that every run has, whatever its labels are."""


def metrics_of(further: Iterable[str], *, label_maps: bool) -> Sequence[Metric]:
    """The metrics of a run: those that all runs on such labels have, and `further` ones by name.

    A `UserError` if a name is unknown, or the metric does not suit the labels.
    """
    suitable = {name: kind for name, kind in METRICS.items() if kind.label_maps in (None, label_maps)}
    names = dict.fromkeys(name for name, kind in suitable.items() if kind.in_every_run)
    for name in further:
        if name not in METRICS:
            raise unknown("metric", name, suitable)
        if name not in suitable:
            needs, given = ("images", "pixels") if label_maps else ("pixels", "images")
            raise UserError(
                f"the metric {name} needs labels of {needs}, but the data set has labels of {given} "
                f"(allowed: {', '.join(suitable)})"
            )
        names[name] = None
    return [METRICS[name]() for name in names]
