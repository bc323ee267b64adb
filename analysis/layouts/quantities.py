"""The quantities that tables and figures can show, gathered from where each is declared: metrics, rounds, analyses."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from fedflat.analysis.analyses import ANALYSES, analyses_of_users
from fedflat.analysis.analyses.base import Analysis
from fedflat.bench.engine.federation import MEASURED
from fedflat.bench.input.errors import unknown
from fedflat.bench.methods.compose import SLOTS
from fedflat.bench.metrics import METRICS, known_metrics
from fedflat.bench.metrics.base import Metric
from fedflat.bench.metrics.columns import SUBSETS, metric_column
from fedflat.bench.metrics.quantity import Quantity

METRICS_FILE = "metrics"
"""The kind of file with one row per round."""

_DEVIATION_OVER = 100
_SHOWN = ("test", "train")
_OF_PARTS = ("seen", "unseen")


@dataclass(frozen=True)
class Shown(Quantity):
    """A quantity and where its values are.

    `file`: the kind of tidy file. In the file `metrics` it is a column with one value per round, in those of analyses
    one row per run. It may be derived from another `column` of `metrics`: from the evaluations of the first `share` of
    the rounds, or as standard deviation over the last `deviation_over` evaluations. `in_each_round`: it is known in
    each round, without an evaluation.
    """

    file: str = METRICS_FILE
    column: str = ""
    share: float = 1.0
    deviation_over: int | None = None
    in_each_round: bool = False


def _of_metrics(metrics: Mapping[str, type[Metric]]) -> Iterator[tuple[str, Shown]]:
    """The columns of metrics, and what is derived from those on test samples."""
    for subset in _SHOWN:
        for name, metric in metrics.items():
            parts = _OF_PARTS if subset == "test" and metric.label_maps else ()
            for column in (f"{subset}_{name}", *(f"{subset}_{name}_{part}" for part in parts)):
                if (found := metric_column(column)) is not None:
                    yield column, Shown(**asdict(found))
            if subset == "test" and metric.better == "higher":
                column, words = f"{subset}_{name}", f"{SUBSETS[subset]} {metric.title}"
                half = f"{words} after half of the rounds"
                yield f"{column}_half", Shown(half, metric.better, metric.unit, column=column, share=0.5)
                several = f"{SUBSETS[subset]} {metric.plural or metric.title}"
                yield (
                    f"{column}_std_last{_DEVIATION_OVER}",
                    Shown(
                        f"deviation of the last {_DEVIATION_OVER} {several}",
                        "lower",
                        "points" if metric.unit == "%" else metric.unit,
                        column=column,
                        deviation_over=_DEVIATION_OVER,
                    ),
                )


def _of_rounds() -> Iterator[tuple[str, Shown]]:
    """What each round measures, and the numbers that methods broadcast."""
    components = [component for slot in SLOTS.values() for component in slot.values()]
    for measured in (MEASURED, *(component.measured for component in components)):
        for name, found in measured.items():
            yield name, Shown(**asdict(found), in_each_round=True)


def _of_analyses(analyses: Mapping[str, type[Analysis]]) -> Iterator[tuple[str, Shown]]:
    """The quantities of analyses whose rows have a `metric`."""
    for file, analysis in analyses.items():
        if "metric" in analysis.columns:
            for name, found in analysis.quantities.items():
                yield name, Shown(**asdict(found), file=file)


QUANTITIES: Mapping[str, Shown] = {
    **dict(_of_metrics(METRICS)),
    **dict(_of_rounds()),
    **dict(_of_analyses(ANALYSES)),
}
"""Those of FedFlat by name."""


def known_quantities() -> Mapping[str, Shown]:
    """Those of FedFlat, and of the metrics and analyses of users, by name."""
    of_users = {name: kind for name, kind in known_metrics().items() if name not in METRICS}
    return {**dict(_of_analyses(analyses_of_users())), **dict(_of_metrics(of_users)), **QUANTITIES}


def round_columns() -> tuple[str, ...]:
    """The quantities that are columns of metrics.csv, of which a run has some."""
    return tuple(name for name, one in known_quantities().items() if one.file == METRICS_FILE and not one.column)


def quantity(name: str) -> Shown:
    """A quantity by its name; a `UserError` suggests the nearest."""
    known = QUANTITIES if name in QUANTITIES else known_quantities()
    if name not in known:
        raise unknown("metric", name, known)
    return known[name]
