"""A method before its hyper-parameters are chosen: four parts, and the hyper-parameters that they take."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from bench.input.errors import UserError, unknown
from bench.input.frozen import refuse_bools
from bench.methods.base import Aggregation, Component, Correction, Loss, Method, Perturbation, Server
from bench.methods.corrections.none import NoCorrection
from bench.methods.losses.cross_entropy import CrossEntropy
from bench.methods.perturbations.none import NoPerturbation
from bench.methods.servers.average import Average
from bench.methods.swa import SWA


@dataclass(frozen=True)
class Components:
    """The classes of a method's parts."""

    perturbation: type[Perturbation] = NoPerturbation
    correction: type[Correction] = NoCorrection
    server: type[Server] = Average
    loss: type[Loss] = CrossEntropy

    def __post_init__(self) -> None:
        kinds = (Perturbation, Correction, Server, Loss)
        for (slot, part), kind in zip(self.by_slot().items(), kinds, strict=True):
            if not (isinstance(part, type) and issubclass(part, kind)):
                raise UserError(f"{slot} must be a subclass of {kind.__name__}, not {part!r}")
            if missing := getattr(part, "__abstractmethods__", None):
                raise UserError(f"{part.__name__} is a {slot} without {min(missing)}(...)")
            if not isinstance(getattr(part, "name", None), str):
                raise UserError(f'{part.__name__} needs a name, for example: name: ClassVar[str] = "{slot}"')

    def by_slot(self) -> dict[str, type[Component]]:
        """By slot."""
        return {
            "perturbation": self.perturbation,
            "correction": self.correction,
            "server": self.server,
            "loss": self.loss,
        }

    def fields(self) -> dict[str, FieldInfo]:
        """All hyper-parameters of all parts; one that several parts have is required if any of them requires it."""
        found: dict[str, FieldInfo] = {}
        for part in self.by_slot().values():
            for name, info in part.model_fields.items():
                if name not in found or info.is_required() or not found[name].is_required():
                    found[name] = info
        return found

    def shared(self) -> dict[str, FieldInfo]:
        """Hyper-parameters whose name stands in several parts, as slot.name: one value each.

        Those that parts must agree on (`ONE_PER_METHOD`) are left out.
        """
        slots = self.by_slot().items()
        count = Counter(name for _, part in slots for name in part.model_fields)
        return {
            f"{slot}.{n}": info
            for slot, part in slots
            for n, info in part.model_fields.items()
            if count[n] > 1 and n not in ONE_PER_METHOD
        }


@dataclass(frozen=True)
class Recipe:
    """A named method before its hyper-parameters are chosen.

    `takes` lists its hyper-parameters and switches (None: all that its parts have); where two parts have one of the
    same name, both get it, unless it is given as `slot.name`. `aggregation` is the method's own weighting of clients:
    by `samples` n_i, or `uniform`. `without` names a switch that, when false, replaces the parts. Every method also
    takes `swa`.
    """

    name: str
    title: str
    source: str
    components: Components = field(default_factory=Components)
    takes: tuple[str, ...] | None = None
    aggregation: Aggregation = "uniform"
    without: Mapping[str, Components] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.components, Components):
            raise UserError(f"{self.name}: components = {self.components!r}: Components(...) is needed")
        for switch in self.without:
            if switch not in SWITCHES:
                raise unknown(f"switch of {self.name}", switch, SWITCHES)
        known = [*self.components.fields(), *self.without]
        for name in self.takes or ():
            if name not in known:
                raise unknown(f"hyper-parameter of {self.name} in takes", name, known)

    @property
    def hyperparameters(self) -> dict[str, FieldInfo]:
        """Default, range and meaning of each hyper-parameter and switch."""
        fields = self.components.fields()
        switches = {name: FieldInfo(annotation=bool, default=True, description=SWITCHES[name]) for name in self.without}
        return {name: (fields | switches)[name] for name in (self.takes if self.takes is not None else fields)}

    def complete(self, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        """Every hyper-parameter that acts and is not null, as the parts have it: equal methods give equal values.

        A `UserError` as in `build`. Infinity is written as text, which JSON can hold.
        """
        method = self.build(hyperparameters)
        values: dict[str, Any] = {}
        for name in self.hyperparameters:
            own = {
                slot: getattr(part, name) for slot, part in method.by_slot().items() if name in type(part).model_fields
            }
            if name in self.without:
                values[name] = hyperparameters.get(name, True)
            elif len(set(own.values())) == 1:
                values[name] = next(iter(own.values()))
            else:
                values |= {f"{slot}.{name}": value for slot, value in own.items()}
        values = {
            name: str(value) if isinstance(value, float) and math.isinf(value) else value
            for name, value in values.items()
            if value is not None
        }
        return values if method.swa is None else {**values, "swa": method.swa.model_dump()}

    def build(self, hyperparameters: Mapping[str, Any]) -> Method:
        """The method with these hyper-parameters; a `UserError` names what is missing, unknown or out of range."""
        values = dict(hyperparameters)
        swa = values.pop("swa", None)
        known = self.hyperparameters
        shared = self._shared()
        for key in values:
            if key not in known and key not in shared:
                raise unknown(f"hyper-parameter of {self.name}", key, [*known, *shared, "swa"])
        refuse_bools(known | shared, values, self.name)
        parts = self._chosen(values)
        missing = [name for name in parts.fields() if name in known and not _given(name, parts, values)]
        if missing:
            raise UserError(f"{self.name} needs {', '.join(missing)} (it takes: {', '.join(known)})")
        method = self._assemble(parts, values)
        if swa is None:
            return method
        if not isinstance(swa, Mapping):
            raise UserError(f"{self.name}: swa = {swa!r}: a mapping with {', '.join(SWA.model_fields)} is needed")
        return replace(method, swa=SWA.parse(swa, where=f"{self.name}: swa"))

    def _shared(self) -> dict[str, FieldInfo]:
        """What can be given as slot.name."""
        return self.components.shared() if self.takes is None else {}

    def _chosen(self, values: Mapping[str, Any]) -> Components:
        """The method's parts, or those that a switch which is off puts in their place."""
        for switch, parts in self.without.items():
            on = values.get(switch, True)
            if not isinstance(on, bool):
                raise UserError(f"{self.name}: {switch} = {on!r}: true or false")
            if not on:
                return parts
        return self.components

    def _assemble(self, parts: Components, values: Mapping[str, Any]) -> Method:
        built: dict[str, Any] = {}
        for slot, part in parts.by_slot().items():
            try:
                own = {name: values[name] for name in part.model_fields if name in values}
                own |= {n: values[f"{slot}.{n}"] for n in part.model_fields if f"{slot}.{n}" in values}
                built[slot] = part(**own)
            except ValidationError as error:
                first = error.errors()[0]
                raise UserError(f"{self.name}: {first['loc'][0]} = {first['input']!r}: {first['msg']}") from None
        return Method(self.name, **built, aggregation=self.aggregation)


def _given(name: str, parts: Components, values: Mapping[str, Any]) -> bool:
    """Whether every part that requires this hyper-parameter gets a value."""
    owners = [(slot, part.model_fields[name]) for slot, part in parts.by_slot().items() if name in part.model_fields]
    slots = [slot for slot, info in owners if info.is_required()]
    return name in values or all(f"{slot}.{name}" in values for slot in slots)


ONE_PER_METHOD = frozenset({"server_dual", "scale_A"})
"""What correction and server, or perturbation and correction, must agree on."""

SWITCHES = {"regulariser": "with the dual term and its server; without, q = g and the server is FedAvg's"}
"""What the switches in `Recipe.without` mean."""
