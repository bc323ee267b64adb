"""Which runs can be trained in one cohort."""

from typing import Any

from fedflat.bench.engine.row_values import SLOTS, searched_numbers
from fedflat.bench.experiments.run_config import RunConfig

OWN_RATES = ("lr", "lr_decay", "lr_schedule", "server_lr", "server_lr_schedule", "weight_decay")
"""Settings of training that each run of a cohort has for itself."""
SWA = "swa"
"""Averaging over rounds is the server's part, which each run has for itself."""


def differ_in_seed_only(a: RunConfig, b: RunConfig) -> bool:
    """Whether two runs are the same apart from their seeds."""
    return _shared(a, ()) == _shared(b, ())


def same_cohort(a: RunConfig, b: RunConfig) -> bool:
    """Whether two runs can share a cohort if hyper-parameters are by row (`engine.values: by_row`).

    They may differ in their seeds, in rates and weight decay, in SWA, and in the real hyper-parameters that a search
    varies (`searched_numbers`), in all components that have them. A number that is a choice, whole, or null in one of
    them decides what is computed, so it must be the same.
    """
    return _shared(a, OWN_RATES, by_row=True) == _shared(b, OWN_RATES, by_row=True)


def _shared(config: RunConfig, own_rates: tuple[str, ...], *, by_row: bool = False) -> dict[str, Any]:
    """What runs of a cohort have in common."""
    values = config.model_dump(mode="json", exclude={"seed": True, "engine": True, "training": set(own_rates)})
    if by_row:
        given = values["method"]["hyperparameters"]
        values["method"]["hyperparameters"] = {
            name: value for name, value in given.items() if name != SWA and not _is_by_row(config, name)
        }
    return values


def _is_by_row(config: RunConfig, name: str) -> bool:
    """Whether all components that have this hyper-parameter take it by row."""
    components = config.method.recipe.components.by_slot()
    having = {slot: component for slot, component in components.items() if name in component.model_fields}
    return bool(having) and all(slot in SLOTS and name in searched_numbers(c) for slot, c in having.items())
