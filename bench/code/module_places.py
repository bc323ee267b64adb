"""Where the modules of users are, without importing anything."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

PROVIDED = sys.stdlib_module_names | {"fedflat"}
"""Names of packages and modules that are part of Python or FedFlat."""

INSTALLED = {"site-packages", "dist-packages"}

EARLIER = ("bench", "analysis")
"""Names that packages of FedFlat had before they were fedflat.bench and fedflat.analysis."""

_OWN = {Path(__file__).resolve().parents[2] / name for name in (*EARLIER, "fedflat", "paper_tables")}
"""FedFlat's own folders, which are no modules of users, also if the current folder is that of the repository."""


class CheckingFinder(MetaPathFinder):
    """Checks what the other finders find."""


def found(module: str) -> ModuleSpec | None:
    """Where a module is, on Python's path or else in the current folder; None if it is not there.

    Neither the module nor its packages are imported.
    """
    top, *below = module.split(".")
    importlib.invalidate_caches()
    try:
        spec = by_others(top) or in_folder(current_folder(), top)
    except (ImportError, ValueError):  # such as an empty name
        return None
    name = top
    for part in below:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def by_others(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
    """Where all other finders find a module, whatever module of this name has been imported."""
    others = (finder for finder in sys.meta_path if not isinstance(finder, CheckingFinder))
    return next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)


def files_of(spec: ModuleSpec) -> list[Path]:
    """The Python file of a module, or all Python files of a package."""
    folders = list(map(Path, spec.submodule_search_locations or ()))
    file = [Path(spec.origin)] if spec.has_location and spec.origin is not None else []
    return list(dict.fromkeys([*file, *(one for folder in folders for one in sorted(folder.rglob("*.py")))]))


def place(name: str, folder: Path | None = None) -> Path | None:
    """Where a package or module of the highest level is: in `folder`, or by default where `found` looks.

    None: it is part of Python or FedFlat, installed, or absent.
    """
    first = None if name in PROVIDED | {""} else _first(in_folder(folder, name) if folder else found(name))
    return None if first is None or first in _OWN or INSTALLED & set(first.parts) else first


def _first(spec: ModuleSpec | None) -> Path | None:
    """The folder of a package, or the file of a module."""
    places = () if spec is None else (*(spec.submodule_search_locations or ()), *filter(None, [spec.origin]))
    return Path(places[0]).resolve() if places else None


def is_of_current_folder(name: str) -> bool:
    """Whether a package or module of the highest level is one of the user in the current folder."""
    there = place(name)
    return there is not None and there.parent == current_folder()


def current_folder() -> Path | None:
    """None: it was deleted."""
    try:
        return Path.cwd().resolve()
    except OSError:
        return None


def in_folder(folder: Path | None, name: str) -> ModuleSpec | None:
    """Where a package or module of the highest level is in a folder."""
    return None if folder is None else PathFinder.find_spec(name, [str(folder)])
