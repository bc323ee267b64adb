"""Whether what a method declares has an effect: hyper-parameters, states, and weights by numbers of samples."""

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
from pydantic.fields import FieldInfo

from fedflat.bench.engine.federation import FederationState
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Component
from fedflat.bench.methods.marks import Neutral, search_of
from fedflat.bench.methods.method import Method
from fedflat.bench.methods.recipe import Components
from fedflat.conformance.checks import NotCheckedError, Subject, far
from fedflat.conformance.finding import DIFFERENCE, EFFECTS, Finding, Place
from fedflat.conformance.sources import is_of_user, own_classes
from fedflat.conformance.trial import TrialRun
from fedflat.conformance.watch import Watch


def effects(subject: Subject, watch: Watch, reference: Sequence[FederationState]) -> Iterator[Finding]:
    """What is declared, but could be left out without any difference."""
    yield from _states(subject, watch)
    yield from _weights(subject, reference)
    unclear = []
    for name in subject.recipe.hyperparameters:
        if tried := _without_effect(subject, name):
            shown = ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in tried)
            if not _is_of_user(subject.method, name):
                unclear.append(f"the same models and states with {name} = {shown}")
                continue
            mend = f"choose values with which it matters, with --set NAME=VALUE; or remove {name}"
            yield Finding(
                EFFECTS, subject.sources.of_variable(name), f"that {name} has an effect",
                f"the same models and states with {name} = {shown}",
                mend if _is_read(subject.method, name) else f"use self.{name} in a hook, or remove it",
            )  # fmt: skip
    if unclear:
        raise NotCheckedError(f"{'; '.join(unclear)}; choose other values next to it with --set NAME=VALUE")


_CHANGES_NO_MODEL = ("also_evaluated", "upload_bits", "download_bits")
"""Hooks with which a method differs from others whose models it has."""


def difference(subject: Subject, reference: Sequence[FederationState]) -> Iterator[Finding]:
    """A method that computes what FedAvg does, or what it does without one of its own components, bit for bit.

    Values of zero may switch a component off, so the method is tried with others, too.
    """
    plain = Components().by_slot()
    if not any(type(part) is not plain[slot] for slot, part in subject.method.by_slot().items()):
        raise NotCheckedError("the method is FedAvg")
    own = {name for part in subject.method for name in _CHANGES_NO_MODEL if _is_overridden(part, name)}
    if own:
        raise NotCheckedError(f"{', '.join(sorted(own))} changes no model that is trained")
    same = [name for name, other in _changes(subject.method) if _has_models(other, reference)]
    if not same:
        return
    nonzero = subject.recipe.build(_nowhere_zero(subject))
    states = TrialRun(nonzero).states()
    same = [name for name, other in _changes(nonzero) if name in same and _has_models(other, states)]
    if same:
        yield Finding(
            DIFFERENCE, Place(subject.sources.main), f"other models than those of {same[0]}",
            "the same bits in all rounds",
            "correct the component, or remove it; or choose values with which it matters, with --set NAME=VALUE",
        )  # fmt: skip


def _is_overridden(component: Component, name: str) -> bool:
    kind = next(base for base in type(component).__mro__ if not is_of_user(base))
    return getattr(type(component), name, None) is not getattr(kind, name, None)


def _changes(method: Method) -> Iterator[tuple[str, Method]]:
    """FedAvg, and the method without each of its own components if it has several, with names in words."""
    plain, parts = Components().by_slot(), method.by_slot()
    yield "FedAvg", replace(method, **{slot: plain[slot]() for slot in parts})  # type: ignore[arg-type]
    own = [slot for slot, part in parts.items() if type(part) is not plain[slot]]
    for slot in own if len(own) > 1 else ():
        if is_of_user(type(parts[slot])):
            without = replace(method, **{slot: plain[slot]()})  # type: ignore[arg-type]
            yield f"the method without its {slot} '{parts[slot].name}'", without


def _has_models(method: Method, states: Sequence[FederationState]) -> bool:
    try:
        return all(torch.equal(one.w, other.w) for one, other in zip(TrialRun(method).states(), states, strict=True))
    except (Exception, SystemExit):  # the other components need what is left out
        return False


def _states(subject: Subject, watch: Watch) -> Iterator[Finding]:
    """States that are declared, but that no hook stores."""
    for component in subject.method:
        declared = {"client.state": component.client_state, "server.state": component.server_state}
        for kind, names in declared.items():
            for name in names:
                if (kind, name) not in watch.stored:
                    declaration = kind.replace(".", "_")
                    yield Finding(
                        EFFECTS, subject.sources.of_variable(declaration), f"that a hook stores {kind}['{name}']",
                        "none does, so that it keeps its first value",
                        f"assign {kind}['{name}'] = ..., or remove the name from {declaration}",
                    )  # fmt: skip


def _weights(subject: Subject, reference: Sequence[FederationState]) -> Iterator[Finding]:
    """Weights by numbers of samples that all components allow, but that have no effect."""
    if subject.method.aggregation == "samples":
        equal = TrialRun(replace(subject.method, aggregation="uniform")).states()
        if not far(reference[-1], equal[-1]):
            yield Finding(
                EFFECTS, subject.place("server", "step"),
                "that the clients' numbers of samples have an effect, because weighted_by_samples = True",
                "the same models and states with equal weights",
                "combine clients by server.mean(rows) or server.weights, or remove weighted_by_samples = True",
            )  # fmt: skip


def _without_effect(subject: Subject, name: str) -> list[Any]:
    """The values of a hyper-parameter that were tried, if all give the same models and states; else an empty list.

    If they do so next to the other values of the check, they are tried next to others that are not zero, too: one of
    those may be a factor of this hyper-parameter.
    """
    own, info = _value(subject.method, name), subject.recipe.hyperparameters[name]
    tried = []
    for values in (subject.values, _nowhere_zero(subject, name)):
        last = TrialRun(subject.recipe.build(values)).states()[-1]
        tried = [value for value in _others(info, own) if _is_allowed(subject, {**values, name: value})]
        for value in tried:
            try:
                another = TrialRun(subject.recipe.build({**values, name: value})).states()[-1]
            except (Exception, SystemExit):  # of the user's code, which has used the value
                return []
            if far(last, another):
                return []
    return [own, *tried] if tried else []


def _nowhere_zero(subject: Subject, name: str = "") -> dict[str, Any]:
    """The values of the check, with another value of each hyper-parameter but this one that is zero, false or null."""
    values = dict(subject.values)
    for other, info in subject.recipe.hyperparameters.items():
        own = _value(subject.method, other)
        if other != name and not own:
            tried = ({**values, other: value} for value in _others(info, own))
            values = next((found for found in tried if _is_allowed(subject, found)), values)
    return values


def _is_of_user(method: Method, name: str) -> bool:
    """Whether a hyper-parameter is one of a component that FedFlat does not provide."""
    return any(is_of_user(type(part)) for part in method if name in type(part).model_fields)


def _is_read(method: Method, name: str) -> bool:
    """Whether the code of the method's components contains an attribute of this name."""
    trees = (ast.parse(Path(file).read_bytes()) for file in {inspect.getfile(cls) for cls in own_classes(method)})
    return any(isinstance(node, ast.Attribute) and node.attr == name for tree in trees for node in ast.walk(tree))


def _value(method: Method, name: str) -> Any:
    return next((getattr(c, name) for c in method if name in type(c).model_fields), None)


def _is_allowed(subject: Subject, values: Mapping[str, Any]) -> bool:
    try:
        subject.recipe.build(values)
    except UserError:
        return False
    return True


def _others(info: FieldInfo, value: Any) -> list[Any]:
    """Other values to try, not all of which need be allowed: those next to this one, then those that are listed."""
    if isinstance(value, bool):
        return [not value]
    search = search_of(info)
    listed = [*(info.examples or ()), *(search.ends if search else ()), *get_args(info.annotation)]
    listed += [mark.value for mark in info.metadata if isinstance(mark, Neutral)]
    if value is None:
        near = [0.1, 1]
    elif isinstance(value, int):
        near = [2 * value, value + 1, 0, 1, 2]
    elif isinstance(value, float):
        near = [2 * value, value / 2, 0.1, 1, 0, -value, 1e-3 * value, 1e3 * value]
    else:
        near = []
    found = [value, *near, *listed]
    return [other for i, other in enumerate(found) if i and other not in found[:i]]
