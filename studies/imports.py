"""The imports between the modules of the clone, and the rooms of the house: the packages that it consists of."""

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from studies.places import CLONE

PACKAGES = ("bench", "analysis", "fedflat", "studies")
ROOMS = (
    "fedflat.bench.input", "fedflat.bench.files", "fedflat.bench.host", "fedflat.bench.code", "fedflat.bench.numerics",
    "fedflat.bench.data", "fedflat.bench.models", "fedflat.bench.metrics", "fedflat.bench.methods",
    "fedflat.bench.engine", "fedflat.bench.experiments", "fedflat.bench.training", "fedflat.bench.tuning",
    "fedflat.analysis.measures", "fedflat.analysis.analyses", "fedflat.analysis.layouts", "fedflat.analysis.published",
    "fedflat.analysis.store", "fedflat.analysis.verdicts", "fedflat.analysis.tables", "fedflat.analysis.figures",
    "fedflat.analysis.report", "fedflat.analysis.claims", "fedflat.analysis.explorer",
    "fedflat.analysis.comparison", "fedflat.analysis.planning", "fedflat.analysis.provenance",
    "fedflat",
    "studies",
)  # fmt: skip
"""From the lowest to the highest: a package imports from itself and from packages before it in this list. The last one
is no part of what is installed."""


@cache
def modules() -> dict[str, Path]:
    """The files of all modules, by name."""
    files = (file for package in PACKAGES for file in (CLONE / package).rglob("*.py"))
    names = {file: named(file.relative_to(CLONE).with_suffix("").parts) for file in files}
    return {name.removesuffix(".__init__"): file for file, name in names.items()}


def named(parts: Sequence[str]) -> str:
    """The name of a module or package; `fedflat` has links to `bench` and `analysis`."""
    return ".".join(("fedflat", *parts) if parts[0] in ("bench", "analysis") else parts)


@cache
def imports(module: str) -> tuple[str, ...]:
    """The project's modules that a module imports anywhere in its file, also within functions.

    Those of fedflat itself are for types only: it imports them when they are first used.
    """
    found: list[str] = []
    tree = ast.parse(modules()[module].read_bytes())
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and is_own(node.module):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name in modules() else node.module for name in names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if is_own(alias.name)]
    return tuple(dict.fromkeys(found))


def is_own(module: str) -> bool:
    """Whether the name of an import begins with a folder of the project; `bench` and `analysis` are in no room."""
    return module.partition(".")[0] in PACKAGES


def room(module: str) -> str | None:
    """The room of a module; None if it is in none."""
    return next((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), None)
