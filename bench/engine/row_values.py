"""Hyper-parameters that the runs of one cohort may have otherwise: each row of the cohort then has its own values."""

from collections.abc import Mapping

from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.methods.base import Component
from fedflat.bench.methods.marks import search_of
from fedflat.bench.methods.method import Method, RoundValues

STEP = "step"
"""The slot of the local step's settings in these values."""

SLOTS = ("perturbation", "correction", "server")
"""The components whose hyper-parameters may differ. A loss decides which tensors there are."""


def searched_numbers(component: type[Component]) -> list[str]:
    """The real hyper-parameters of a component that a search varies: no choice, no whole number, none that may be null.

    It depends on the class only, so that a run's bits do not depend on which runs it is trained with.
    """
    fields = component.model_fields.items()
    return [name for name, info in fields if info.annotation is float and search_of(info) is not None]


def row_values(method: Method, settings: StepSettings) -> RoundValues:
    """A run's values of these hyper-parameters, and of weight decay, by slot and name."""
    found: dict[str, Mapping[str, float]] = {STEP: {"weight_decay": settings.weight_decay}}
    components = method.by_slot()
    for slot in SLOTS:
        if names := searched_numbers(type(components[slot])):
            found[slot] = {name: getattr(components[slot], name) for name in names}
    return found


def with_later(values: RoundValues, later: RoundValues) -> RoundValues:
    """All values; those of `later` take the place of others."""
    slots = {**values, **later}
    return {slot: {**values.get(slot, {}), **later.get(slot, {})} for slot in slots}
