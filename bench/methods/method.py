"""A method with its hyper-parameters: four components, and what they do together from round to round."""

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import message_of
from fedflat.bench.methods.aggregations import Aggregation
from fedflat.bench.methods.base import Component, Correction, Loss, Perturbation, Server
from fedflat.bench.methods.marks import Shared, has_mark
from fedflat.bench.methods.schedules import extreme_rounds, factors
from fedflat.bench.methods.schedules.base import Schedule
from fedflat.bench.methods.swa import SWA

RoundValues = Mapping[str, Mapping[str, float | Tensor]]
"""Values of hyper-parameters in one round, by slot and name."""


@dataclass(frozen=True)
class Method:
    """A method with its hyper-parameters: components, the method's aggregation weights, and SWA if it is used."""

    name: str
    perturbation: Perturbation
    correction: Correction
    server: Server
    loss: Loss
    aggregation: Aggregation
    swa: SWA | None = None
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    """Schedules over rounds by hyper-parameter."""
    buffers: Component | None = None
    """What happens to the model's buffers; the engine sets it for models that have some."""

    def check_server_lr(self, server_lr: float, *, has_schedule: bool = False) -> None:
        """Raises `UserError` if the method has no server learning rate and `server_lr` is not 1, or has a schedule."""
        if self.server.needs_unit_server_lr() and server_lr != 1:
            raise UserError(f"{self.name} has no server learning rate: server_lr must be 1, not {server_lr:g}")
        if self.server.needs_unit_server_lr() and has_schedule:
            raise UserError(f"{self.name} has no server learning rate, so server_lr_schedule must be null")

    def by_slot(self) -> dict[str, Component]:
        """The components by slot. The loss is first, since the `start` of other components may compute gradients."""
        return {
            "loss": self.loss,
            "perturbation": self.perturbation,
            "correction": self.correction,
            "server": self.server,
        }

    def __iter__(self) -> Iterator[Component]:
        if self.buffers is not None:  # first, since the `start` of other components may compute gradients
            yield self.buffers
        yield from self.by_slot().values()

    def round_values(self, t: int, rounds: int) -> RoundValues:
        """The hyper-parameters that change from round to round, in round t, from 0, of a run with these rounds."""
        found: dict[str, dict[str, float | Tensor]] = {}
        for slot, component in self.by_slot().items():
            values: dict[str, float | Tensor] = dict(component.round_values(t))
            if strange := [name for name in values if name not in type(component).model_fields]:
                raise unknown(
                    f"hyper-parameter in round_values of {component.name}", strange[0], type(component).model_fields
                )
            for name, schedule in self.schedules.items():
                if name in type(component).model_fields:
                    values[name] = schedule.at(t, rounds) * values.get(name, getattr(component, name))
            if values:
                found[slot] = values
        return found

    def named_values(self, values: RoundValues) -> dict[str, float | Tensor]:
        """These values by name; by `slot.name`, such as server.rho_g, where several components have their own."""
        own = Counter(
            name
            for slot, component in self.by_slot().items()
            for name in values.get(slot, {})
            if not has_mark(type(component).model_fields[name], Shared)
        )
        return {
            f"{slot}.{name}" if own[name] > 1 else name: value
            for slot, of_slot in values.items()
            for name, value in of_slot.items()
        }

    def with_values(self, values: RoundValues) -> "Method":
        """The method with these hyper-parameters, which are not validated."""
        changed: dict[str, Any] = {
            slot: component.model_copy(update=dict(values[slot]))
            for slot, component in self.by_slot().items()
            if slot in values
        }
        return replace(self, **changed) if changed else self

    def check_changes(self, rounds: int) -> None:
        """A `UserError` if a hyper-parameter that changes leaves its range in one of these rounds."""
        for component in self.by_slot().values():
            own = [component.round_values(t) for t in range(rounds if _has_own_changes(component) else 0)]
            for name in type(component).model_fields:
                schedule = self.schedules.get(name)
                if schedule is None and not any(name in values for values in own):
                    continue
                given = getattr(component, name)
                values = [one.get(name, given) for one in own] or [given] * rounds
                if schedule is not None:
                    values = [factor * v for factor, v in zip(factors(schedule, rounds), values, strict=True)]
                for t in extreme_rounds(values):
                    if wrong := _mistake(type(component), name, values[t]):
                        cause = "round_values" if schedule is None else f"the schedule {schedule.name}"
                        place = f"{name} = {values[t]:g} in round {t + 1} of {rounds}"
                        raise UserError(f"{self.name}: {place}, by {cause}: {wrong}")

    def start_client(self, w: Tensor) -> dict[str, Tensor]:
        """The initial state of a client, of all components."""
        return {name: v for component in self for name, v in component.start_client(w).items()}

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """The initial state of the server, of all components."""
        wrapped = {} if self.swa is None else self.swa.start_server(w0)
        return {name: v for component in self for name, v in component.start_server(w0).items()} | wrapped

    def broadcast_model(self, w: Tensor, state: Mapping[str, Tensor], t: int) -> Tensor:
        """The model that clients start from in round t."""
        model: Tensor = _with_round(self.server.broadcast_model, w, state, t)
        return model

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int) -> dict[str, Tensor]:
        """All tensors that the server sends in addition to the model in round t."""
        return {name: v for component in self for name, v in _with_round(component.broadcast, w, state, t).items()}


def _with_round(hook: Callable[..., Any], w: Tensor, state: Mapping[str, Tensor], t: int) -> Any:
    """The result of a hook that may leave the argument t out."""
    return hook(w, state, t) if _takes_round(getattr(hook, "__func__", hook)) else hook(w, state)


@functools.cache
def _takes_round(function: Callable[..., Any]) -> bool:
    return len(inspect.signature(function).parameters) > 3


def _has_own_changes(component: Component) -> bool:
    return type(component).round_values is not Component.round_values


@functools.cache
def _field(component: type[Component], name: str) -> TypeAdapter[float]:
    """The field alone: validators of the whole component compare given values, not those of a round."""
    info = component.model_fields[name]
    kind: Any = Annotated[info.annotation, info]
    return TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))


def _mistake(component: type[Component], name: str, value: float) -> str:
    """What is wrong with this value of a hyper-parameter, in words; empty if nothing is."""
    try:
        _field(component, name).validate_python(value)
    except ValidationError as error:
        return message_of(error.errors()[0])
    return ""
