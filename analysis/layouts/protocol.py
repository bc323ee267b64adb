"""Adapt a layout to an experiment: shorter windows and other data for short runs, and another reported value."""

from typing import Any, TypeVar

from fedflat.analysis.layouts.titles import with_trained_data
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.frozen import Frozen

Model = TypeVar("Model", bound=Frozen)
"""A layout, a column of a table, or an analysis."""


def at_scale(model: Model, experiment: Experiment) -> Model:
    """The model with numbers of rounds that fit the experiment's runs.

    At smoke scale, `window`, `every` and the number of evaluations of `final` are at most a quarter of the rounds, but
    a `window` or `final` over several evaluations has at least two; curves are means of all evaluations. Limits of the
    y axis, which suit long runs, are dropped. At paper scale nothing changes.
    """
    if experiment.scale == "paper":
        return model
    quarter = experiment.training.rounds // 4
    longest = {"window": max(2, quarter), "every": max(1, quarter), "spacing": 1}
    shorter: dict[str, Any] = {name: most for name, most in longest.items() if getattr(model, name, 1) > most}
    shorter |= {limit: None for limit in ("y_min", "y_max") if getattr(model, limit, None) is not None}
    final = getattr(model, "final", None)
    if isinstance(final, FinalValue):
        shorter["final"] = final_at_scale(final, experiment)
    return model.model_copy(update=shorter)


def with_trained_headings(model: Model, experiment: Experiment) -> Model:
    """The layout whose titles and headers name the data that are trained at smoke scale."""
    return model if experiment.scale == "paper" else _renamed(model)


def _renamed(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_renamed, value))
    if not isinstance(value, Frozen):
        return value
    headings = {name: with_trained_data(text) for name, text in value if name in _HEADINGS and isinstance(text, str)}
    parts = {name: _renamed(part) for name, part in value if isinstance(part, tuple | Frozen)}
    changed = {name: part for name, part in {**headings, **parts}.items() if part != getattr(value, name)}
    return value.model_copy(update=changed)


_HEADINGS = ("title", "header", "group")


def final_at_scale(final: FinalValue, experiment: Experiment) -> FinalValue:
    """The reported value over as many evaluations as `at_scale` allows."""
    longest = max(2, experiment.training.rounds // 4)
    if experiment.scale == "paper" or final.n is None or final.n <= longest:
        return final
    return final.model_copy(update={"n": longest})


def with_requested_value(layout: Model, experiment: Experiment) -> Model:
    """The layout with the experiment's `report`, if one is requested, in place of the layout's own `final` value."""
    if experiment.report is None or not hasattr(layout, "final"):
        return layout
    return layout.model_copy(update={"final": FinalValue.named(experiment.report)})
