"""Code that configurations name: in which sections and spellings, and how an experiment's code becomes trusted."""

import ast
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedflat.bench.code.module_places import files_of, found, is_of_current_folder
from fedflat.bench.code.trusted_code import UntrustedCodeError, is_trusted, trust
from fedflat.bench.code.user_code import imported
from fedflat.bench.input.content import read_own
from fedflat.bench.input.errors import UserError

_REFERENCE = re.compile(r"(?P<place>.+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*")
"""The short form of a function: path/to/file.py:function, or package.module:function."""


class CodeFile(NamedTuple):
    """A user-defined Python file: its kind in messages, such as "method file", its path, and its content's hash."""

    kind: str
    file: Path
    code_hash: str | None


class NamedCode:
    """The base class of configurations that name Python code; each executes it by `user_code.run_file`."""

    @classmethod
    @abstractmethod
    def kind_of_file(cls) -> str:
        """The kind of the file in messages, such as "model file"."""

    @classmethod
    def is_in(cls, fields: Mapping[str, Any]) -> bool:
        """Whether the stored fields of a section that allows this configuration name code."""
        return any(fields.get(name) is not None for name in ("file", "module", "function", "code"))

    @property
    @abstractmethod
    def code_file(self) -> CodeFile | None:
        """The file with the code; None if this configuration names no code."""


def parse_reference(text: str, noun: str) -> dict[str, str]:
    """The fields of a user-defined function for path/to/file.py:function, or for package.module:function."""
    place, _, function = text.rpartition(":")
    if not place or not function:
        raise UserError(
            f"{noun} '{text}': a user-defined {noun} must be path/to/file.py:function or package.module:function"
        )
    return {"file" if place.endswith(".py") or "/" in place else "module": place, "function": function}


def trust_file(file: Path, kind: str) -> None:
    """Trust a file that the user names in a command, and the modules of the current folder that it imports.

    A `UserError` if it cannot be read.
    """
    trust(read_own(file, kind))
    _trust_all(_imports(file))


def trust_named(data: object) -> None:
    """Trust the code that an experiment of the user names, in any place and spelling, and what it imports.

    Files that cannot be read are reported by those who execute them.
    """
    for place in _places(data):
        module = place if isinstance(place, str) else None
        _trust_all([*_files(place), *(_package(module) if module is not None else ())])


def require_trusted_names(data: object, allow: str) -> None:
    """An `UntrustedCodeError`, which ends with `allow`, if a stored experiment names code that is not trusted."""
    for place in _places(data):
        for file in _files(place):
            if (source := _content(file)) is not None and not is_trusted(source):
                raise UntrustedCodeError(file, "Python file", allow)


def _places(data: object) -> Iterator[Path | str]:
    """The files, and the names of modules, that the values of a mapping or list name, at any depth."""
    if isinstance(data, Mapping):
        file, module = data.get("file"), data.get("module")
        if isinstance(file, str | Path) and str(file).endswith(".py"):
            yield Path(file)
        if isinstance(module, str):
            yield module
        data = list(data.values())
    if isinstance(data, str) and (reference := _REFERENCE.fullmatch(data)) is not None:
        place = reference["place"]
        yield Path(place) if place.endswith(".py") else place
    if isinstance(data, list | tuple):
        for value in data:
            yield from _places(value)


def _files(place: Path | str) -> list[Path]:
    """The file, or that of a module."""
    if isinstance(place, Path):
        return [place]
    spec = found(place)
    return [Path(spec.origin)] if spec is not None and spec.has_location and spec.origin is not None else []


def _package(module: str) -> list[Path]:
    """All files of the package of a module, if it is in the current folder."""
    top = module.partition(".")[0]
    spec = found(top) if is_of_current_folder(top) else None
    return [] if spec is None else files_of(spec)


def _imports(file: Path) -> list[Path]:
    """The files of the modules and packages of the current folder that a file imports."""
    source = _content(file)
    try:
        names = {name for _, name in imported(ast.parse(source or b""))}
    except (SyntaxError, ValueError):  # reported when it is executed
        return []
    return [one for name in sorted(names) for one in _package(name)]


def _trust_all(files: Iterable[Path]) -> None:
    """Trust these files, and the modules of the current folder that they import."""
    todo, known = list(files), set[Path]()
    while todo:
        file = todo.pop()
        if file not in known and (source := _content(file)) is not None:
            known.add(file)
            trust(source)
            todo += _imports(file)


def _content(file: Path) -> bytes | None:
    try:
        return read_own(file.expanduser(), "Python file")
    except (UserError, RuntimeError):
        return None
