"""Functions and class variables that look like hooks, but are none: the engine never calls them, and nothing fails."""

import difflib
import inspect
from collections.abc import Iterator, Sequence
from functools import cached_property

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
        kinds = tuple(kind for kind in KINDS if issubclass(cls, kind)) or KINDS  # of a class for several components
        for name, value in vars(cls).items():
            if name.startswith("_") or name in cls.model_fields or isinstance(value, property | cached_property):
                continue
            if any(hasattr(kind, name) or name in _variables(kind) for kind in kinds):
                yield from _order(subject, cls, kinds, name)
            elif name not in used:
                yield from _unknown(subject, kinds, name, is_hook=callable(value) or isinstance(value, _WRAPPED))


_WRAPPED = (staticmethod, classmethod)


def _unknown(subject: Subject, kinds: Sequence[type[Component]], name: str, *, is_hook: bool) -> Iterator[Finding]:
    """A name that nothing uses, if another kind of component has it, or if it is almost one of this kind."""
    names, what = (_hooks, "hook") if is_hook else (_variables, "class variable")
    place = subject.sources.of_function(name) if is_hook else subject.sources.of_variable(name)
    own, unused = " or ".join(kind.__name__ for kind in kinds), "calls" if is_hook else "reads"
    if others := [kind.__name__ for kind in KINDS if name in names(kind)]:
        yield Finding(
            HOOKS, place, f"{what}s of {own}", f"{name}, a {what} of {others[0]}, which nothing {unused} here",
            f"move it to a {others[0]}, or rename it",
        )  # fmt: skip
    elif alike := difflib.get_close_matches(name, [one for kind in kinds for one in names(kind)], 1, ALIKE):
        yield Finding(HOOKS, place, f"the {what} {alike[0]}", f"{name}, which nothing {unused}", f"name it {alike[0]}")


def _order(subject: Subject, cls: type[Component], kinds: Sequence[type[Component]], name: str) -> Iterator[Finding]:
    """Arguments that have the names of the hook's, but not its order: each would get another one's value."""
    if not inspect.isfunction(vars(cls)[name]):
        return
    base = next(kind for kind in kinds if hasattr(kind, name))
    given, expected = (list(inspect.signature(getattr(one, name)).parameters)[1:] for one in (cls, base))
    if any(one in expected and given.index(one) != expected.index(one) for one in given):
        yield Finding(
            HOOKS, subject.sources.of_function(name), f"{name}({', '.join(['self', *expected])})",
            f"{name}({', '.join(['self', *given])})", "give the arguments in this order: they are passed by position",
        )  # fmt: skip


def _hooks(kind: type[Component]) -> list[str]:
    functions = (name for name, _ in inspect.getmembers(kind, inspect.isfunction) if _is_public(name))
    return [name for name in functions if any(name in vars(cls) for cls in (kind, Component))]


def _variables(kind: type[Component]) -> list[str]:
    return [name for name in inspect.get_annotations(kind) | inspect.get_annotations(Component) if _is_public(name)]


def _is_public(name: str) -> bool:
    """Whether a name is one of FedFlat's, and not pydantic's."""
    return not name.startswith(("_", "model_"))
