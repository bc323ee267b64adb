"""Recipes: a method's name, component classes and hyper-parameters, without values of the hyper-parameters."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.field_words import described, field_at
from fedflat.bench.input.frozen import as_in_yaml, check_bools, kinds, message_of
from fedflat.bench.methods.aggregations import Aggregation
from fedflat.bench.methods.base import Component, Correction, Loss, Perturbation, Server
from fedflat.bench.methods.corrections.none import NoCorrection
from fedflat.bench.methods.losses.cross_entropy import CrossEntropy
from fedflat.bench.methods.marks import DropsOtherComponents, Scheduled, Shared, has_mark
from fedflat.bench.methods.method import Method
from fedflat.bench.methods.perturbations.none import NoPerturbation
from fedflat.bench.methods.schedules import parse_schedule
from fedflat.bench.methods.schedules.base import Schedule
from fedflat.bench.methods.schedules.decays.constant import Constant
from fedflat.bench.methods.servers.average import Average
from fedflat.bench.methods.swa import SWA

SCHEDULES = "schedules"
"""The entry among a method's hyper-parameters with the schedules of the others, by name."""


@dataclass(frozen=True)
class Components:
    """The class of each component. The defaults are FedAvg's."""

    perturbation: type[Perturbation] = NoPerturbation
    correction: type[Correction] = NoCorrection
    server: type[Server] = Average
    loss: type[Loss] = CrossEntropy

    def __post_init__(self) -> None:
        kinds = (Perturbation, Correction, Server, Loss)
        for (slot, component), kind in zip(self.by_slot().items(), kinds, strict=True):
            if not (isinstance(component, type) and issubclass(component, kind)):
                raise UserError(f"{slot} must be a subclass of {kind.__name__}, not {component!r}")
            if missing := getattr(component, "__abstractmethods__", None):
                raise UserError(f"{component.__name__} is a {slot} without {min(missing)}(...)")
            if not isinstance(getattr(component, "name", None), str):
                raise UserError(f'{component.__name__} needs a name, for example: name: ClassVar[str] = "{slot}"')

    def by_slot(self) -> dict[str, type[Component]]:
        """The classes by slot."""
        return {
            "perturbation": self.perturbation,
            "correction": self.correction,
            "server": self.server,
            "loss": self.loss,
        }

    def hyperparameters(self) -> dict[str, FieldInfo]:
        """The hyper-parameters of all components. A name that several have is required if one of them requires it."""
        found: dict[str, FieldInfo] = {}
        for component in self.by_slot().values():
            for name, info in component.model_fields.items():
                if name not in found or info.is_required() or not found[name].is_required():
                    found[name] = info
        return found

    def separate(self) -> dict[str, FieldInfo]:
        """The hyper-parameters that several components have and that may differ between them, as `slot.name`."""
        fields = [
            (slot, *item) for slot, component in self.by_slot().items() for item in component.model_fields.items()
        ]
        count = Counter(name for _, name, info in fields if not has_mark(info, Shared))
        return {f"{slot}.{name}": info for slot, name, info in fields if count[name] > 1}


@dataclass(frozen=True)
class Costs:
    """What a method's author expects of the counted costs; None: nothing. `fedflat check-method` compares both.

    Sizes are in units of the model. `download` and `upload` per client and round include the model itself.
    """

    gradients: float | None = None
    download: float | None = None
    upload: float | None = None
    client_state: float | None = None
    server_state: float | None = None


@dataclass(frozen=True)
class Recipe:
    """A named method without values of its hyper-parameters.

    `takes` lists its hyper-parameters; None: all hyper-parameters of its components. If several components have the
    same hyper-parameter, its value applies to all of them; a free composition may also set `slot.name` for one of them.
    Every method takes `swa`, and `schedules` of hyper-parameters that allow them. `costs` are what the author expects.
    `weighting` are its aggregation weights; None: by samples if all components allow it, else uniform. `training` has
    the values of `training` that its paper states, such as {"server_lr": 0.5}: they take precedence over those of an
    experiment for all methods.
    """

    name: str
    title: str
    citation: str
    components: Components = field(default_factory=Components)
    takes: tuple[str, ...] | None = None
    costs: Costs | None = None
    weighting: Aggregation | None = None
    training: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.components, Components):
            raise UserError(f"{self.name}: components must be Components(...), not {self.components!r}")
        known = self.components.hyperparameters()
        for name in self.takes or ():
            if name not in known:
                raise unknown(f"hyper-parameter of {self.name} in takes", name, known)

    @property
    def aggregation(self) -> Aggregation:
        """The method's own aggregation weights: by samples if all components allow it, else uniform."""
        if self.weighting is not None:
            return self.weighting
        components = self.components.by_slot().values()
        return "samples" if all(component.weighted_by_samples for component in components) else "uniform"

    @property
    def hyperparameters(self) -> dict[str, FieldInfo]:
        """Default, range and meaning of each hyper-parameter."""
        known = self.components.hyperparameters()
        if self.takes is None:
            return {name: info for name, info in known.items() if not has_mark(info, DropsOtherComponents)}
        return {name: known[name] for name in self.takes}

    def complete(self, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        """All hyper-parameters that have an effect and are not null, so that equal methods have equal values.

        Infinity becomes text, because JSON has no number for it. Raises `UserError` as `build` does.
        """
        method = self.build(hyperparameters)
        values: dict[str, Any] = {}
        for name in self.hyperparameters:
            by_slot = {
                slot: getattr(component, name)
                for slot, component in method.by_slot().items()
                if name in type(component).model_fields
            }
            if len(set(by_slot.values())) == 1:
                values[name] = next(iter(by_slot.values()))
            else:
                values |= {f"{slot}.{name}": value for slot, value in by_slot.items()}
        values = {
            name: str(value) if isinstance(value, float) and math.isinf(value) else value
            for name, value in values.items()
            if value is not None
        }
        if method.swa is not None:
            values["swa"] = method.swa.model_dump()
        schedules = {name: schedule.model_dump(exclude_none=True) for name, schedule in method.schedules.items()}
        return {**values, SCHEDULES: schedules} if schedules else values

    def build(self, hyperparameters: Mapping[str, Any]) -> Method:
        """The method with these hyper-parameters. A `UserError` names a missing, unknown or out-of-range one."""
        values = dict(hyperparameters)
        swa, schedules = values.pop("swa", None), values.pop(SCHEDULES, None)
        known = self.hyperparameters
        separate = self.components.separate() if self.takes is None else {}
        for key in values:
            if key not in known and key not in separate:
                raise unknown(f"hyper-parameter of {self.name}", key, [*known, *separate, "swa", SCHEDULES])
        check_bools(kinds(known | separate), values, lambda: self.name)
        components = self._chosen(values)
        required = components.hyperparameters()
        missing = [name for name in required if name in known and not _is_given(name, components, values)]
        if missing:
            raise UserError(f"{self.name} needs {', '.join(missing)} (its hyper-parameters: {', '.join(known)})")
        method = replace(self._assembled(components, values), schedules=self._schedules(schedules))
        if swa is None:
            return method
        if not isinstance(swa, Mapping):
            raise UserError(f"{self.name}: swa must be a mapping with {', '.join(SWA.model_fields)}, not {swa!r}")
        return replace(method, swa=SWA.parse(swa, where=f"{self.name}: swa"))

    def _schedules(self, given: Any) -> dict[str, Schedule]:
        """The schedules of hyper-parameters by name; a `UserError` if one cannot follow a schedule."""
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise UserError(f"{self.name}: {SCHEDULES} = {given!r} (allowed: schedules by hyper-parameter)")
        known = self.hyperparameters
        allowed = [name for name, info in known.items() if has_mark(info, Scheduled)]
        found = {}
        for name, options in given.items():
            if name not in known:
                raise unknown(f"hyper-parameter in {SCHEDULES} of {self.name}", name, known)
            if name not in allowed:
                raise UserError(
                    f"{self.name}: {name} cannot follow a schedule (allowed: {', '.join(allowed) or 'none'}; rates "
                    "have lr_schedule and server_lr_schedule of training)"
                )
            schedule = parse_schedule(options, f"{self.name}: {SCHEDULES}.{name}")
            if not isinstance(schedule, Constant):
                found[name] = schedule
        return found

    def _chosen(self, values: Mapping[str, Any]) -> Components:
        """The components: only one of them, if its hyper-parameter with the mark `DropsOtherComponents` is false."""
        alone: dict[str, Any] = {
            slot: component
            for slot, component in self.components.by_slot().items()
            for name, info in component.model_fields.items()
            if has_mark(info, DropsOtherComponents) and values.get(name) is False
        }
        return Components(**alone) if alone else self.components

    def _assembled(self, components: Components, values: Mapping[str, Any]) -> Method:
        built: dict[str, Any] = {}
        for slot, component in components.by_slot().items():
            names = component.model_fields
            own = {name: values[name] for name in names if name in values}
            own |= {name: values[f"{slot}.{name}"] for name in names if f"{slot}.{name}" in values}
            try:
                built[slot] = component(**own)
            except ValidationError as error:
                first = error.errors()[0]
                given = f"{first['loc'][0]} = {as_in_yaml(first['input'])}"
                what = described(field_at(component, first["loc"]), first["input"])
                raise UserError(f"{self.name}: {given}: {message_of(first)}{what}") from None
        return Method(self.name, **built, aggregation=self.aggregation)


def _is_given(name: str, components: Components, values: Mapping[str, Any]) -> bool:
    """Whether every component that requires this hyper-parameter gets a value for it."""
    fields = {slot: component.model_fields.get(name) for slot, component in components.by_slot().items()}
    slots = [slot for slot, info in fields.items() if info is not None and info.is_required()]
    return name in values or all(f"{slot}.{name}" in values for slot in slots)
