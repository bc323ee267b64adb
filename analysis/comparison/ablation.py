"""The variants of a compared method that lack one of its parts: what does each part bring?"""

from collections.abc import Iterator, Mapping
from typing import Any

from fedflat.bench.experiments.schema import MethodEntry
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.marks import Neutral
from fedflat.bench.methods.recipe import Components, Recipe

WITHOUT = "-without-"
"""Between the label of the method and the part that the variant lacks."""

Entry = dict[str, Any]


def variants(label: str, entry: Mapping[str, Any], title: str | None = None) -> dict[str, Entry]:
    """The entries of an experiment's methods, by label: one for each part that has a base.

    A hyper-parameter that is marked `Neutral` is fixed at its value without effect. A component without such a
    hyper-parameter is replaced by that of FedAvg, if the others do without it. A `UserError` if there is no such part.
    """
    recipe = MethodEntry.parse(entry).choice(label).recipe
    named = {**entry} if {"name", "file", *Components().by_slot()} & {*entry} else {"name": label, **entry}
    found = dict(_neutral(named, recipe)) | dict(_removed(named, recipe))
    if not found:
        raise UserError(
            f"{label} has no part that an ablation could leave out (allowed: a hyper-parameter that is marked Neutral, "
            "or a component that the others do not need)"
        )
    shown = title or entry.get("title") or recipe.title
    return {f"{label}{WITHOUT}{part}": {**one, "title": f"{shown} without {part}"} for part, one in found.items()}


def _neutral(entry: Entry, recipe: Recipe) -> Iterator[tuple[str, Entry]]:
    """The entries with a hyper-parameter at its value without effect, by its name. No search finds another one."""
    for name, info in recipe.hyperparameters.items():
        for mark in _marks(info):
            fixed = {name: mark.value, **mark.given}
            changes = {"hyperparameters": {**entry.get("hyperparameters", {}), **fixed}}
            yield name, {**entry, **changes, "search": {**entry.get("search", {}), **dict.fromkeys(fixed)}}


def _removed(entry: Entry, recipe: Recipe) -> Iterator[tuple[str, Entry]]:
    """The entries without a component, by its slot."""
    neutral = Components().by_slot()
    for slot, component in recipe.components.by_slot().items():
        fields = component.model_fields
        if component is neutral[slot] or any(mark.base is None for info in fields.values() for mark in _marks(info)):
            continue
        one = {**entry, slot: neutral[slot].name}
        try:
            left = MethodEntry.parse({**one, "hyperparameters": {}}).choice(slot).recipe
        except UserError:  # another component needs it
            continue
        values = entry.get("hyperparameters", {})
        known = {*left.hyperparameters, *left.components.separate(), "swa"}
        yield slot, {**one, "hyperparameters": {name: value for name, value in values.items() if name in known}}


def _marks(info: Any) -> list[Neutral]:
    return [mark for mark in info.metadata if isinstance(mark, Neutral)]
