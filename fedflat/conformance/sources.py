"""A method's own code: its files, and the lines of hooks, of assignments, and of what is running."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

from fedflat.bench.code.user_code import line_of
from fedflat.bench.methods.base import Component
from fedflat.bench.methods.method import Method
from fedflat.conformance.finding import Place

_BASE = "fedflat.bench.methods.base"


def own_classes(method: Method) -> list[type[Component]]:
    """The classes of the components and their bases, without those that all components share."""
    classes = [cls for component in method for cls in type(component).__mro__ if issubclass(cls, Component)]
    return [cls for cls in dict.fromkeys(classes) if cls.__module__ != _BASE]


def is_of_user(cls: type) -> bool:
    """Whether a class is one of a user's file, and not FedFlat's."""
    return not cls.__module__.startswith("fedflat.")


class Sources:
    """The files in which a method's components are defined; `main` is the one that findings without a place name."""

    def __init__(self, method: Method, main: Path | None = None) -> None:
        classes = own_classes(method)
        files = dict.fromkeys(Path(inspect.getfile(cls)) for cls in classes)
        self.main = main or _nearest(method)
        self._files = [main] if main is not None else list(files)
        self._names = {str(file) for file in self._files}

    @cached_property
    def _trees(self) -> dict[str, ast.Module]:
        return {str(file): ast.parse(file.read_bytes()) for file in self._files}

    def text(self, place: Place) -> str:
        """The line of code at a place; empty if the place has none."""
        if place.line is None:
            return ""
        lines = place.file.read_text(encoding="utf-8").splitlines()
        return lines[place.line - 1].strip() if place.line <= len(lines) else ""

    def running(self) -> Place | None:
        """The line of these files that is running, in the innermost frame; None if none is."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in self._names:
                return Place(Path(frame.f_code.co_filename), frame.f_lineno)
            frame = frame.f_back
        return None

    def of_error(self, error: BaseException) -> Place:
        """The last line of these files that was running when the error was raised."""
        lines = {name: line_of(error, Path(name)) for name in self._names}
        known = {name: line for name, line in lines.items() if line is not None}
        return next((Place(Path(name), line) for name, line in known.items()), Place(self.main))

    def of_result(self, hook: Callable[..., Any]) -> Place:
        """Where a hook returns its result: its only `return`, or its first line."""
        file, first = hook.__code__.co_filename, hook.__code__.co_firstlineno
        if file not in self._names:
            return Place(self.main)
        for node in ast.walk(self._trees[file]):
            if isinstance(node, ast.FunctionDef) and first in (node.lineno, *(d.lineno for d in node.decorator_list)):
                returns = [inner.lineno for inner in ast.walk(node) if isinstance(inner, ast.Return)]
                return Place(Path(file), returns[0] if len(returns) == 1 else node.lineno)
        return Place(Path(file), first)

    def of_entry(self, dictionary: str, name: str) -> Place:
        """The first assignment of an entry, such as `client.state["memory"] = ...`."""
        return self._first(lambda node: _assigns_entry(node, dictionary, name))

    def of_function(self, name: str) -> Place:
        """The first definition of a function of this name."""
        return self._first(lambda node: isinstance(node, ast.FunctionDef) and node.name == name)

    def attributes(self) -> set[str]:
        """The names of all attributes that the files read, or set."""
        nodes = (node for tree in self._trees.values() for node in ast.walk(tree))
        return {node.attr for node in nodes if isinstance(node, ast.Attribute)}

    def of_variable(self, name: str) -> Place:
        """The first assignment of a variable."""
        return self._first(lambda node: any(isinstance(t, ast.Name) and t.id == name for t in _targets(node)))

    def _first(self, matches: Callable[[ast.AST], bool]) -> Place:
        found = ((file, node) for file, tree in self._trees.items() for node in ast.walk(tree) if matches(node))
        lines = sorted((Path(file), getattr(node, "lineno", 0)) for file, node in found)
        return Place(*lines[0]) if lines else Place(self.main)


def _nearest(method: Method) -> Path:
    """The file of the first component that is not FedAvg's."""
    classes = [type(component) for component in method]
    own = [cls for cls in classes if cls.__name__ not in ("CrossEntropy", "NoPerturbation", "NoCorrection", "Average")]
    return Path(inspect.getfile((own or classes)[0]))


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield node.target


def _assigns_entry(node: ast.AST, dictionary: str, name: str) -> bool:
    return any(
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == name
        and ast.unparse(target.value).endswith(dictionary)
        for target in _targets(node)
    )
