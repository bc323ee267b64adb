"""Whether what a method declares has an effect: hyper-parameters, states, and weights by numbers of samples."""

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from fedflat.bench.engine.federation import FederationState
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Method
from fedflat.bench.methods.marks import Neutral, search_of
from fedflat.conformance.checks import NotCheckedError, Subject, far
from fedflat.conformance.finding import EFFECTS, Finding
from fedflat.conformance.sources import own_classes
from fedflat.conformance.trial import TrialRun
from fedflat.conformance.watch import Watch


def effects(subject: Subject, watch: Watch, reference: Sequence[FederationState]) -> Iterator[Finding]:
    """What is declared, but could be left out without any difference."""
    yield from _states(subject, watch)
    yield from _weights(subject, reference)
    unclear = []
    for name, info in subject.recipe.hyperparameters.items():
        if tried := _without_effect(subject, name):
            shown = ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in tried)
            seen = f"the same models and states with {name} = {shown}"
            if info.is_required() or not _is_read(subject.method, name):
                yield Finding(
                    EFFECTS, subject.sources.of_variable(name), f"that {name} has an effect", seen,
                    f"use self.{name} in a hook, or remove it; choose other values next to it with --set NAME=VALUE",
                )  # fmt: skip
            else:
                unclear.append(seen)
    if unclear:
        raise NotCheckedError(f"{'; '.join(unclear)}; choose other values next to it with --set NAME=VALUE")


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


def _nowhere_zero(subject: Subject, name: str) -> dict[str, Any]:
    """The values of the check, with another value of each hyper-parameter but this one that is zero, false or null."""
    values = dict(subject.values)
    for other, info in subject.recipe.hyperparameters.items():
        own = _value(subject.method, other)
        if other != name and not own:
            tried = ({**values, other: value} for value in _others(info, own))
            values = next((found for found in tried if _is_allowed(subject, found)), values)
    return values


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
