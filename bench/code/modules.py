"""Imports by code of users, of trusted modules only."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from fedflat.bench.code.module_places import INSTALLED, PROVIDED, CheckingFinder, by_others, current_folder, in_folder
from fedflat.bench.code.present_names import compiled
from fedflat.bench.code.trusted_code import require_trusted

KIND = "module"

USERS_MODULE = "fedflat_user_"
"""The begin of the names of modules that are files of users."""


def check_later_imports() -> None:
    """From now on, code of users imports modules of the current folder only if their code is trusted, whenever it does.

    Imports within functions, such as a model's `forward`, are executed long after the file. Imports by other code, such
    as the cells of a notebook, stay as they are.
    """
    if not any(isinstance(finder, _LaterFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LaterFinder())


@contextmanager
def checked_imports(*, from_current_folder: bool = False) -> Iterator[None]:
    """In the block, modules of the current folder are imported only if their code is trusted.

    They can be imported if `from_current_folder`, or if Python's path has that folder; modules of other folders take
    precedence.
    """
    finder = _Finder(importable=from_current_folder)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _LaterFinder(CheckingFinder):
    """Finds modules for code of users only."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `_Finder`; None if other code imports the module."""
        return _Finder(importable=False).find_spec(fullname, path, target) if _is_imported_by_users_code() else None


def _is_imported_by_users_code() -> bool:
    """Whether the import that is being executed is in a file of a user, or in a module that such a file imports."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") == __name__ or _is_of_importlib(frame.f_globals.get("__name__")):
        if frame.f_back is None:
            return False
        frame = frame.f_back
    is_file = str(frame.f_globals.get("__name__")).startswith(USERS_MODULE)
    return is_file or isinstance(frame.f_globals.get("__loader__"), _CheckedLoader)


def _is_of_importlib(name: object) -> bool:
    return str(name).partition(".")[0] in ("importlib", "_frozen_importlib", "_frozen_importlib_external")


class _Finder(CheckingFinder):
    """Finds modules as all other finders do, and checks those of the current folder."""

    def __init__(self, *, importable: bool) -> None:
        self._folder = current_folder()
        self._importable = importable

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module, whose code is checked when it is executed; None if it is not one of the current folder."""
        top = fullname.partition(".")[0]
        if top in PROVIDED:
            return None
        spec = by_others(fullname, path, target)
        if spec is None and path is None and self._importable:
            spec = in_folder(self._folder, fullname)
        if spec is None or not spec.has_location or spec.origin is None:
            return spec
        file = Path(spec.origin)
        if not (self._has(file.absolute(), top) or self._has(file.resolve(), top)):  # a link may lead out of the folder
            return spec
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _CheckedLoader(fullname, spec.origin)
        else:  # compiled code
            require_trusted(file, file.read_bytes(), KIND)
        return spec

    def _has(self, file: Path, top: str) -> bool:
        """Whether a file belongs to the module or package `top` of the current folder."""
        if self._folder is None or not file.is_relative_to(self._folder) or INSTALLED & set(file.parts):
            return False
        return file.relative_to(self._folder).parts[0].partition(".")[0] == top


class _CheckedLoader(SourceFileLoader):
    """Executes the source that it has checked: Python's bytecode files may have been made from another one."""

    def get_code(self, fullname: str) -> CodeType:
        """The compiled source; an `UntrustedCodeError` if it is not trusted."""
        source = self.get_data(self.path)
        require_trusted(Path(self.path), source, KIND)
        return compiled(source, Path(self.path))
