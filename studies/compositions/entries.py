"""The entry of a composition in an experiment: its components, with the values of the grid's methods that use them.

For each component, the source is the method of the grid that has it and the fewest other components; of several, the
first one. The source gives the component's hyper-parameters, and fields of `training`: if several sources have a field,
the later slot takes precedence; `server_lr` is always that of the server's source. A component that no method of the
grid has keeps its defaults, or the first of its examples. Values that a method has in some settings only (`where`) are
not used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedflat.bench.engine.method_costs import example_values
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.schema import PUBLISHED, MethodEntry
from fedflat.bench.methods.compose import SLOTS
from studies.compositions.triples import AXES, NEUTRAL, Triple


@dataclass(frozen=True)
class GridEntries:
    """The methods of a grid that are triples, without variants and SWA: their labels and entries, by triple."""

    methods: Mapping[Triple, tuple[str, MethodEntry]]

    @classmethod
    def of(cls, experiment: Experiment) -> "GridEntries":
        """Those of an experiment; the first label of several methods with one triple."""
        found: dict[Triple, tuple[str, MethodEntry]] = {}
        for label, entry in experiment.methods.items():
            triple = Triple.of(entry.choice(label).recipe)
            if triple is not None and entry.variant == PUBLISHED and "swa" not in entry.hyperparameters:
                found.setdefault(triple, (label, entry))
        return cls(found)

    def label(self, triple: Triple) -> str:
        """The label of the grid's method with this triple; else the triple's own."""
        return self.methods[triple][0] if triple in self.methods else triple.label

    def entry(self, triple: Triple) -> dict[str, Any] | None:
        """The entry of a triple in a file that extends the grid's; None, to inherit that of the grid's method."""
        return None if triple in self.methods else self._composed(triple)

    def _composed(self, triple: Triple) -> dict[str, Any]:
        components = triple.recipe.components
        names = {slot: set(cls.model_fields) for slot, cls in components.by_slot().items() if slot in AXES}
        separate = components.separate()
        values: dict[str, Any] = {}
        training: dict[str, Any] = {}
        for slot in AXES:
            source = self._source(slot, getattr(triple, slot))
            given = {} if source is None else source.hyperparameters
            own = {**example_values(SLOTS[slot][getattr(triple, slot)].model_fields)}
            own |= {name: given[name] for name in names[slot] if name in given}
            values |= {f"{slot}.{name}" if f"{slot}.{name}" in separate else name: own[name] for name in sorted(own)}
            if source is not None:
                training |= {
                    key: value for key, value in source.training.items() if slot == "server" or key != "server_lr"
                }
        entry: dict[str, Any] = {**triple._asdict(), "hyperparameters": values, "training": training}
        return {key: value for key, value in entry.items() if value}

    def _source(self, slot: str, name: str) -> MethodEntry | None:
        """The grid's method with this component and the fewest others."""
        others = {
            triple: sum(part != neutral for part, neutral in zip(triple, NEUTRAL, strict=True))
            for triple in self.methods
            if getattr(triple, slot) == name
        }
        return self.methods[min(others, key=others.__getitem__)][1] if others else None
