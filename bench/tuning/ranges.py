"""The ranges among which the values of a method are searched: those that stand with the values, and those given."""

from collections.abc import Mapping
from typing import Any

from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.sections.method_choice import MethodConfig
from fedflat.bench.methods.marks import Search, search_of
from fedflat.bench.methods.method import Method
from fedflat.bench.methods.recipe import Recipe
from fedflat.bench.methods.swa import SWA

Ranges = dict[str, Search]
"""Search ranges by the place of the value in a method's entry, such as training.lr or hyperparameters.rho."""

TRAINING, HYPERPARAMETERS = "training.", "hyperparameters."
"""The beginnings of the names of ranges."""


def of_training(method: Method) -> Ranges:
    """The fields of `training` that are searched for a method: its server rate only if it has one."""
    found = {name: search_of(info) for name, info in StepSettings.model_fields.items()}
    if method.server.needs_unit_server_lr():
        del found["server_lr"]
    elif method.server.server_lr_search is not None:
        found["server_lr"] = method.server.server_lr_search
    return {TRAINING + name: search for name, search in found.items() if search is not None}


def ranges_of(method: MethodConfig) -> Ranges:
    """The ranges that stand with the rates and with those hyper-parameters that have an effect in the method."""
    recipe, values = method.recipe, method.hyperparameters
    infos = {**recipe.hyperparameters, **recipe.components.separate()}
    marked = {name: search_of(info) for name, info in infos.items() if name in values}
    if "swa" in values:
        marked |= {f"swa.{name}": search_of(info) for name, info in SWA.model_fields.items()}
    own = {HYPERPARAMETERS + name: search for name, search in marked.items() if search is not None}
    return of_training(method.built) | own


def value_at(place: str, values: Any) -> Any:
    """The value at a place such as training.lr; None without one.

    Each part of a place is a key. Hyper-parameters of components have a key with a dot, such as server.beta.
    """
    if not isinstance(values, Mapping):
        return None
    head, _, rest = place.partition(".")
    return values[place] if place in values else value_at(rest, values.get(head))


def places_of(recipe: Recipe, *, has_swa: bool) -> dict[str, str]:
    """The places that can be searched, by their whole and by their short names, such as lr and hyperparameters.rho."""
    own = [*recipe.hyperparameters, *recipe.components.separate()]
    if has_swa:
        own += [f"swa.{name}" for name in SWA.model_fields]
    found = {name: HYPERPARAMETERS + name for name in own}
    found |= {name: TRAINING + name for name in StepSettings.model_fields}
    return found | {place: place for place in [*found.values(), *(HYPERPARAMETERS + name for name in own)]}
