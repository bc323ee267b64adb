"""The measured columns of tables of runs and of their curves, in words: metrics, costs, and values of analyses."""

from collections.abc import Hashable, Iterable

from fedflat.analysis.analyses import ANALYSES
from fedflat.bench.experiments.sections.evaluation import TEST, TRAIN
from fedflat.bench.metrics import EVERYWHERE, METRICS, known_metrics
from fedflat.bench.metrics.columns import metric_column
from fedflat.bench.metrics.quantity import Better, Quantity

ROUNDS_TO = "rounds_to_"
"""The beginning of a column with the rounds to a target."""

GAP = "generalisation_gap"

SPENT = {
    "communicated_mb": Quantity("traffic", "lower", "MB"),
    "gradients": Quantity("gradients", "lower"),
    "seconds": Quantity("seconds", "lower"),
}
"""What a whole run has spent."""

FIT = {
    "fit_round": Quantity("first round with a fitted model", "lower"),
    "fit_mb": Quantity("traffic until a model is fitted", "lower", "MB"),
}
"""Of runs of data that have samples for validation: the first evaluated round with a fitted model, and what is
communicated until then."""

_OTHERS = {GAP: Quantity("generalisation gap", "lower", "points"), "round": Quantity("rounds"), **SPENT, **FIT}

_SCORES_FIRST = sorted(EVERYWHERE, key=lambda name: METRICS[name].better == "lower")
RATED = tuple(f"{subset}_{name}" for subset in (TEST, TRAIN) for name in _SCORES_FIRST)
"""The columns of metrics that every run has."""

OF_FITTING = ("validation_accuracy", "validation_loss", *FIT, "train_true_accuracy")
"""Further columns of runs of data that have samples for validation; the last one of data with wrong labels."""

_ANALYSED = sorted(
    (one.of_runs, column, name)
    for name, analysis in ANALYSES.items()
    for column, one in analysis.quantities.items()
    if one.of_runs is not None
)
ANALYSED = {column: name for _, column, name in _ANALYSED}
"""Columns with a value of an analysis, and the analysis."""

FLATNESS = tuple(column for column, name in ANALYSED.items() if ANALYSES[name].quantities[column].is_flatness)
"""Those that measure flatness: lower values are flatter."""

CURVE = ("test_accuracy", "test_loss", "communicated_mb", "gradients")
"""The measured columns of every curve."""


def run_quantity(column: str) -> Quantity | None:
    """A measured column in words; None for a column that is not measured."""
    if column.startswith(ROUNDS_TO):
        return Quantity(f"rounds to {column.removeprefix(ROUNDS_TO)} %", "lower")
    if column in ANALYSED:
        return ANALYSES[ANALYSED[column]].quantities[column]
    return _OTHERS.get(column) or metric_column(column)


def column_name(column: str) -> str:
    """The short name of a measured column, for lists and axes: λ_max."""
    found = run_quantity(column)
    return column if found is None else found.name


def better(column: str) -> Better | None:
    """Whether higher or lower values of a measured column are better; None for a column that is not measured."""
    found = run_quantity(column)
    return None if found is None or found.better == "none" else found.better


def further_metrics(columns: Iterable[Hashable]) -> list[str]:
    """The columns of metrics, among these, that not every run has: on test, then on training samples."""
    known = set(columns)
    wanted = (f"{subset}_{name}" for name in known_metrics() for subset in (TEST, TRAIN))
    return [column for column in wanted if column in known and column not in RATED]
