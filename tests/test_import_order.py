"""The structure of the project: imports run in one direction and not in circles; the tests mirror the packages."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.places import ROOT

PACKAGES = ("bench", "analysis", "fedflat")
ROOMS = (
    "bench.input", "bench.files", "bench.host", "bench.code", "bench.numerics",
    "bench.data", "bench.models", "bench.methods",
    "bench.engine", "bench.experiments", "bench.training", "bench.tuning",
    "analysis.measures", "analysis.analyses", "analysis.layouts", "analysis.published",
    "analysis.verdicts", "analysis.tables", "analysis.figures",
    "analysis.report", "analysis.claims", "analysis.explorer",
    "analysis.comparison", "analysis.planning", "analysis.provenance",
    "fedflat",
)  # fmt: skip
"""From the lowest to the highest: a package imports from itself and from packages before it in this list."""


@cache
def modules() -> dict[str, Path]:
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    names = {file: ".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files}
    return {name.removesuffix(".__init__"): file for file, name in names.items()}


@cache
def imports(module: str) -> tuple[str, ...]:
    """The project's modules that a module imports anywhere in its file, also within functions."""
    found: list[str] = []
    for node in ast.walk(ast.parse(modules()[module].read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name in modules() else node.module for name in named]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in modules()]
    return tuple(dict.fromkeys(found))


def room(module: str) -> str | None:
    return next((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), None)


def wrong_imports(module: str) -> list[str]:
    """What is wrong with a module's place and its imports, in words."""
    if module in ("bench", "analysis"):
        return [f"{module} imports {imported}; the packages themselves import nothing" for imported in imports(module)]
    own = room(module)
    if own is None:
        return [f"{module} is in no room"]
    later = set(ROOMS[ROOMS.index(own) + 1 :])
    return [
        f"{module} imports {imported}, from a later room or from none"
        for imported in imports(module)
        if imported != "bench" and room(imported) in {*later, None}
    ]


def test_imports_run_one_way():
    assert [mistake for module in modules() for mistake in wrong_imports(module)] == []


def packages(module: str) -> set[str]:
    """The packages that contain a module."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def test_no_files_import_each_other_in_a_circle():
    """An import of a module runs the __init__.py of its packages first, too, unless the importing file is in them."""
    graph = {
        module: set(imports(module)).union(*(packages(other) - packages(module) for other in imports(module)))
        - {module}
        for module in modules()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


def test_the_tests_mirror_the_rooms():
    folders = {file.parent for package in PACKAGES for file in (ROOT / "tests" / package).rglob("test_*.py")}
    tested = {".".join(folder.relative_to(ROOT / "tests").parts) for folder in folders}
    assert tested == set(ROOMS)
