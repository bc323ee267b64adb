"""Free compositions: any perturbation with any correction, server and loss, by their names."""

import itertools
from collections.abc import Mapping
from typing import Any

from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.registry import registered
from fedflat.bench.methods.base import Component, Correction, Loss, Perturbation, Server
from fedflat.bench.methods.recipe import Components, Recipe

SLOTS: dict[str, dict[str, type[Component]]] = {
    "perturbation": dict(registered(Perturbation, "fedflat.bench.methods.perturbations")),
    "correction": dict(registered(Correction, "fedflat.bench.methods.corrections")),
    "server": dict(registered(Server, "fedflat.bench.methods.servers")),
    "loss": dict(registered(Loss, "fedflat.bench.methods.losses")),
}
"""All components by slot and name, for example SLOTS["perturbation"]["asam"]. A new file is a new component."""


def losses() -> dict[str, type[Loss]]:
    """All losses by name."""
    return {name: kind for name, kind in SLOTS["loss"].items() if issubclass(kind, Loss)}


def compose(chosen: Mapping[str, str]) -> Recipe:
    """The recipe of a free composition, given component names by slot. Slots that are left out have FedAvg's component.

    Raises `UserError` for unknown slots and components, and for components that do not fit together.
    """
    components = _with(Components(), chosen)
    title = " + ".join(c.name for c in components.by_slot().values() if c not in Components().by_slot().values())
    return Recipe(title or "none", title or "FedAvg", "free composition", components)


def combine(own: Recipe, chosen: Mapping[str, str]) -> Recipe:
    """A recipe with components of the catalog in slots in which it has FedAvg's, given by their names.

    FedAvg's component in another slot takes the recipe's out. It takes all hyper-parameters of its components. Raises
    `UserError` as `compose` does, and if another component would replace one of the recipe's.
    """
    neutral = Components().by_slot()
    taken = {slot: c.name for slot, c in own.components.by_slot().items() if c is not neutral[slot]}
    added = {slot: name for slot, name in chosen.items() if taken.get(slot, neutral[slot].name) != name}
    if replaced := [slot for slot, name in added.items() if slot in taken and name != neutral[slot].name]:
        slot, free = replaced[0], ", ".join(slot for slot in SLOTS if slot not in taken)
        raise UserError(
            f"{slot}: {added[slot]} would replace the method's own {slot} '{taken[slot]}' (allowed: {free or 'none'})"
        )
    if not added:
        return own
    new = "".join(f" + {name}" for name in dict.fromkeys(name for slot, name in added.items() if slot not in taken))
    less = "".join(f" − {taken[slot]}" for slot in added if slot in taken)
    components = _with(own.components, added)
    names = (f"{own.name}{new}{less}", f"{own.title}{new}{less}")
    return Recipe(*names, own.citation, components, training=own.training)


def _with(components: Components, chosen: Mapping[str, str]) -> Components:
    """The components with those of these names in their slots."""
    classes: dict[str, Any] = dict(components.by_slot())
    for slot, name in chosen.items():
        if slot not in SLOTS:
            raise unknown("component of a method", slot, SLOTS)
        if name not in SLOTS[slot]:
            raise unknown(slot, name, SLOTS[slot])
        classes[slot] = SLOTS[slot][name]
    combined = Components(**classes)
    check_fit(combined)
    return combined


def check_fit(components: Components) -> None:
    """A `UserError` if components do not fit together.

    The correction must store the client state that the server needs, components that others presume must be there, and
    two components must not store different state under one name.
    """
    needed = set(components.server.needs_client_state)
    if missing := needed - set(components.correction.client_state):
        fitting = [name for name, correction in SLOTS["correction"].items() if needed <= set(correction.client_state)]
        raise UserError(
            f"server {components.server.name} needs a correction that stores {min(missing)}, which "
            f"{components.correction.name} does not (allowed: {', '.join(fitting)})"
        )
    chosen = components.by_slot()
    for slot, component in chosen.items():
        for other, name in component.needs.items():
            if not issubclass(chosen[other], SLOTS[other][name]):
                raise UserError(
                    f"{slot} {component.name} needs the {other} {name}, not {chosen[other].name} (allowed: {name})"
                )
    for kind in ("client_state", "server_state"):
        for first, second in itertools.combinations(components.by_slot().values(), 2):
            common = [cls for cls in first.__mro__ if cls in second.__mro__]
            shared = {name for cls in common for name in getattr(cls, kind, ())}
            clash = set(getattr(first, kind)) & set(getattr(second, kind)) - shared
            if clash:
                raise UserError(f"{first.name} and {second.name} both have a {kind} '{min(clash)}': rename one of them")
