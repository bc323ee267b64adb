"""What a file with a method imports, and may rely on.

    from fedflat.methods import Components, Perturbation, Recipe, unit

The classes of the catalog's components are here, too: `from fedflat.methods import ControlVariates`; `fedflat methods`
names the class of each, and docs/experiments/methods.md lists them.
"""

from typing import Any

from fedflat.bench.methods.base import (
    ClientRound,
    Component,
    Correction,
    Loss,
    Perturbation,
    Server,
    ServerRound,
    along,
    norm,
    unit,
)
from fedflat.bench.methods.compose import SLOTS
from fedflat.bench.methods.marks import DropsOtherComponents, Neutral, Radius, Scheduled, Search, Shared
from fedflat.bench.methods.recipe import Components, Costs, Recipe

__all__ = [
    "ClientRound", "Component", "Components", "Correction", "Costs", "DropsOtherComponents", "Loss", "Neutral",
    "Perturbation", "Radius", "Recipe", "Scheduled", "Search", "Server", "ServerRound", "Shared", "along", "norm",
    "unit",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The class of a component of the catalog."""
    for components in SLOTS.values():
        for component in components.values():
            if component.__name__ == name:
                return component
    raise AttributeError(f"module 'fedflat.methods' has no attribute '{name}'")
