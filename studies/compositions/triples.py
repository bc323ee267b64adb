"""The triples of perturbation × correction × server: which are legal, which are the same, and which are published."""

import itertools
from functools import cache
from typing import NamedTuple

from fedflat.bench.experiments.files import experiment_names
from fedflat.bench.experiments.resolving import experiment_data
from fedflat.bench.experiments.schema import MethodEntry
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.compose import SLOTS, compose
from fedflat.bench.methods.losses.cross_entropy import CrossEntropy
from fedflat.bench.methods.perturbations.dp_sam import PlainOrAdaptiveSAM
from fedflat.bench.methods.perturbations.gloss import WarmedUpSAM
from fedflat.bench.methods.perturbations.nsam import NesterovSAM
from fedflat.bench.methods.perturbations.sam import MixedSAM
from fedflat.bench.methods.recipe import Recipe
from fedflat.bench.methods.servers.average import AverageOrDirection
from fedflat.bench.methods.servers.nsam import NesterovServer
from fedflat.bench.tuning.protocol.reading import is_of_protocol

AXES = ("perturbation", "correction", "server")

SAME = {
    "perturbation": dict.fromkeys((MixedSAM.name, PlainOrAdaptiveSAM.name, WarmedUpSAM.name, NesterovSAM.name), "sam"),
    "server": {AverageOrDirection.name: "average", NesterovServer.name: "look_ahead"},
}
"""By slot, components that are the same as another one unless a hyper-parameter without a search range is changed. So
FedNSAM, as released, publishes the triple of sam, none and look_ahead."""


class Triple(NamedTuple):
    """The names of a method's components. The fourth one, the loss, is cross-entropy."""

    perturbation: str
    correction: str
    server: str

    @property
    def label(self) -> str:
        """For example sam+feddyn+look_ahead."""
        return "+".join(self)

    @property
    def recipe(self) -> Recipe:
        """The free composition; a `UserError` if its components do not fit together."""
        return compose(self._asdict())

    @classmethod
    def of(cls, recipe: Recipe) -> "Triple | None":
        """The triple of a method, by the names in `SAME`; None for another loss, or for a user's own component."""
        components = recipe.components.by_slot()
        if components["loss"] is not CrossEntropy:
            return None
        if any(components[slot] is not SLOTS[slot].get(components[slot].name) for slot in AXES):
            return None
        names = (components[slot].name for slot in AXES)
        return cls(*(SAME.get(slot, {}).get(name, name) for slot, name in zip(AXES, names, strict=True)))


NEUTRAL = Triple("none", "none", "average")
"""FedAvg's components."""


def all_triples() -> list[Triple]:
    """All triples of registered components, also illegal ones, and those that are the same as another one."""
    return [Triple(*names) for names in itertools.product(*(SLOTS[slot] for slot in AXES))]


def why_left_out(triple: Triple) -> str | None:
    """Why a triple is no composition of its own: illegal, or the same as another one; None if it is one."""
    for slot, name in triple._asdict().items():
        if (other := SAME.get(slot, {}).get(name)) is not None:
            return f"{slot} {name} does the same as {other}"
    try:
        triple.recipe  # noqa: B018 - raises if the components do not fit together
    except UserError as error:
        return str(error)
    return None


@cache
def compositions() -> tuple[Triple, ...]:
    """All legal triples, each once."""
    return tuple(triple for triple in all_triples() if why_left_out(triple) is None)


@cache
def published() -> dict[Triple, str]:
    """The triples of the catalog and of the papers' experiments in `paper_tables`, with the name of a method for each.

    SWA and hyper-parameters are no part of a triple: FedAvgM + SAM + SWA publishes FedAvgM + SAM. Experiments of a
    protocol are no papers: they have bases that are published methods without a part.
    """
    found: dict[Triple, str] = {}
    for recipe in CATALOG.values():
        if (triple := Triple.of(recipe)) is not None:
            found.setdefault(triple, recipe.title)
    papers = (name for name in experiment_names() if not is_of_protocol(name))
    for name in papers:
        for label, entry in experiment_data(name)["methods"].items():
            parsed = MethodEntry.parse(entry, label)
            if (triple := Triple.of(parsed.choice(label).recipe)) is not None:
                found.setdefault(triple, parsed.title or label)
    return found
