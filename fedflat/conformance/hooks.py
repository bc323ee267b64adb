"""Functions and class variables that look like hooks, but are none: the engine never calls them, and nothing fails."""

import difflib
import inspect
from collections.abc import Iterator

from fedflat.bench.methods.base import Component, Correction, Loss, Perturbation, Server
from fedflat.conformance.checks import Subject
from fedflat.conformance.finding import HOOKS, Finding
from fedflat.conformance.sources import is_of_user, own_classes

KINDS: tuple[type[Component], ...] = (Perturbation, Correction, Server, Loss)
ALIKE = 0.75
"""How alike a name and that of a hook are, at least, if it is taken for a misspelt one (difflib's ratio)."""


def hooks(subject: Subject) -> Iterator[Finding]:
    """Hooks that are misspelt, those of another kind of component, and those with their arguments in another order."""
    used = subject.sources.attributes()
    for cls in own_classes(subject.method):
        if not is_of_user(cls):
            continue
        kind = next(kind for kind in KINDS if issubclass(cls, kind))
        for name, value in vars(cls).items():
            if name.startswith("_") or name in cls.model_fields:
                continue
            if inspect.isfunction(value):
                yield from _of_function(subject, kind, name, used)
            elif not callable(value) and not isinstance(value, property | classmethod | staticmethod):
                yield from _of_variable(subject, kind, name, used)


def _of_function(subject: Subject, kind: type[Component], name: str, used: set[str]) -> Iterator[Finding]:
    if hasattr(kind, name):
        yield from _order(subject, kind, name)
        return
    if name in used:  # a function of the author's own
        return
    place = subject.sources.of_function(name)
    if others := [other.__name__ for other in KINDS if hasattr(other, name)]:
        yield Finding(
            HOOKS, place, f"hooks of {kind.__name__}", f"{name}, a hook of {others[0]}, which nothing calls here",
            f"move it to a {others[0]}, or rename it",
        )  # fmt: skip
    elif alike := difflib.get_close_matches(name, _hooks(kind), 1, ALIKE):
        yield Finding(
            HOOKS, place, f"the hook {alike[0]}", f"{name}, which nothing calls", f"name it {alike[0]}",
        )  # fmt: skip


def _of_variable(subject: Subject, kind: type[Component], name: str, used: set[str]) -> Iterator[Finding]:
    if hasattr(kind, name) or name in used or name in _variables(kind):
        return
    if alike := difflib.get_close_matches(name, _variables(kind), 1, ALIKE):
        yield Finding(
            HOOKS, subject.sources.of_variable(name), f"the class variable {alike[0]}", f"{name}, which nothing reads",
            f"name it {alike[0]}",
        )  # fmt: skip


def _order(subject: Subject, kind: type[Component], name: str) -> Iterator[Finding]:
    """Arguments that have the names of the hook's, but not its order: each would get another one's value."""
    [cls] = [type(component) for component in subject.method if isinstance(component, kind)]
    given, expected = (list(inspect.signature(getattr(one, name)).parameters)[1:] for one in (cls, kind))
    moved = [one for one in given if one in expected and given.index(one) != expected.index(one)]
    if moved:
        yield Finding(
            HOOKS, subject.sources.of_function(name), f"{name}({', '.join(['self', *expected])})",
            f"{name}({', '.join(['self', *given])})", "give the arguments in this order: they are passed by position",
        )  # fmt: skip


def _hooks(kind: type[Component]) -> list[str]:
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if _is_ours(kind, name)]


def _variables(kind: type[Component]) -> list[str]:
    return [name for name in inspect.get_annotations(kind) | inspect.get_annotations(Component) if _is_public(name)]


def _is_ours(kind: type[Component], name: str) -> bool:
    """Whether a function is one of FedFlat's, and not pydantic's."""
    return _is_public(name) and any(name in vars(cls) for cls in (kind, Component))


def _is_public(name: str) -> bool:
    return not name.startswith(("_", "model_"))
