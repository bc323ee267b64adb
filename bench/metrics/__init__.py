"""Metrics of models on sets of samples. A new file with a class in the folder kinds is a new metric; so is a class or
function in a file that a user names."""

from collections.abc import Iterable, Mapping, Sequence

from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.registry import registered
from fedflat.bench.metrics.base import Metric

METRICS: dict[str, type[Metric]] = dict(
    sorted(registered(Metric, f"{__name__}.kinds").items(), key=lambda item: (item[1].order, item[0]))
)
"""Those of FedFlat by name, in their order."""

_OF_USERS: dict[str, type[Metric]] = {}
"""Those of users' files, and of their code, that this process has read; of two with a name, the later one."""


EVERYWHERE = tuple(name for name, kind in METRICS.items() if kind.in_every_run and kind.label_maps is None)
"""The metrics that every run has, whatever its labels are."""


def known_metrics() -> Mapping[str, type[Metric]]:
    """All metrics by name: those of FedFlat, and those of users."""
    return {**METRICS, **_OF_USERS}


def add_of_user(kind: type[Metric]) -> None:
    """Make a user's metric known, so that tables and pages name its columns in its words."""
    _OF_USERS[kind.name] = kind


def metrics_of(further: Iterable[str | type[Metric]], *, label_maps: bool) -> Sequence[Metric]:
    """The metrics of a run: those that all runs on such labels have, and `further` ones: names, or those of a user.

    A `UserError` if a name is unknown, two metrics have one name, or a metric does not suit the labels.
    """
    suitable = {name: kind for name, kind in METRICS.items() if kind.label_maps in (None, label_maps)}
    kinds = {name: kind for name, kind in suitable.items() if kind.in_every_run}
    for one in further:
        if isinstance(one, str) and one not in METRICS:
            raise unknown("metric", one, suitable)
        kind = METRICS[one] if isinstance(one, str) else one
        if kind.label_maps not in (None, label_maps):
            needs, given = ("images", "pixels") if label_maps else ("pixels", "images")
            raise UserError(
                f"the metric {kind.name} needs labels of {needs}, but the data set has labels of {given} "
                f"(allowed: {', '.join(suitable)})"
            )
        if kinds.setdefault(kind.name, kind) is not kind:
            raise UserError(f"two metrics have the name '{kind.name}' (allowed: each name once)")
    return [kind() for kind in kinds.values()]
