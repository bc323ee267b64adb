"""Free compositions: any perturbation with any correction, server and loss, by their names."""

import itertools
from collections.abc import Mapping
from typing import Any

from bench.input.errors import UserError, unknown
from bench.input.registry import registered
from bench.methods.base import Component, Correction, Loss, Perturbation, Server
from bench.methods.corrections.prox import Prox
from bench.methods.perturbations.asam import ASAM
from bench.methods.perturbations.gf import GF
from bench.methods.perturbations.sam import SAM, MixedSAM
from bench.methods.recipe import Components, Recipe
from bench.methods.servers.adaptive import AdaGrad, Adam, Yogi
from bench.methods.servers.momentum import Momentum

SLOTS: dict[str, dict[str, type[Component]]] = {
    "perturbation": dict(registered(Perturbation, "bench.methods.perturbations")),
    "correction": dict(registered(Correction, "bench.methods.corrections")),
    "server": dict(registered(Server, "bench.methods.servers")),
    "loss": dict(registered(Loss, "bench.methods.losses")),
}
"""All components by slot and name, for example SLOTS["perturbation"]["asam"]."""

_WEIGHED_BY_SAMPLES: frozenset[type[Component]] = frozenset(
    [*Components().by_slot().values(), Prox, SAM, MixedSAM, ASAM, GF, Momentum, AdaGrad, Adam, Yogi]
)
"""Control variates, duals and client momentum presume equal weights; methods made of these parts alone do not."""


def compose(chosen: Mapping[str, str]) -> Recipe:
    """A recipe from part names by slot; what is left out is none, none, average, cross_entropy.

    A `UserError` names unknown slots and parts, and combinations that make no method.
    """
    parts: dict[str, Any] = dict(Components().by_slot())
    for slot, name in chosen.items():
        if slot not in SLOTS:
            raise unknown("part of a method", slot, SLOTS)
        if name not in SLOTS[slot]:
            raise unknown(slot, name, SLOTS[slot])
        parts[slot] = SLOTS[slot][name]
    composed = Components(**parts)
    check_legal(composed)
    title = " + ".join(part.name for part in composed.by_slot().values() if part not in Components().by_slot().values())
    by_samples = _WEIGHED_BY_SAMPLES.issuperset(composed.by_slot().values())
    return Recipe(
        name=title or "none",
        title=title or "FedAvg",
        source="free composition",
        components=composed,
        aggregation="samples" if by_samples else "uniform",
    )


def check_legal(parts: Components) -> None:
    """A `UserError` if a server needs what the correction does not keep, or two parts keep unlike state of one name."""
    missing = set(parts.server.needs_client_state) - set(parts.correction.client_state)
    if missing:
        fitting = [
            name
            for name, part in SLOTS["correction"].items()
            if set(parts.server.needs_client_state) <= set(part.client_state)
        ]
        raise UserError(
            f"server {parts.server.name} needs a correction that keeps {min(missing)}, which {parts.correction.name} "
            f"does not (allowed: {', '.join(sorted(fitting))})"
        )
    for kind in ("client_state", "server_state"):
        for one, other in itertools.combinations(parts.by_slot().values(), 2):
            common = [part for part in one.__mro__ if part in other.__mro__]
            shared = {name for part in common for name in getattr(part, kind, ())}
            clash = set(getattr(one, kind)) & set(getattr(other, kind)) - shared
            if clash:
                raise UserError(f"{one.name} and {other.name} both keep a {kind} '{min(clash)}': rename one of them")
