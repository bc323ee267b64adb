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
MOST_ROOMS = 13


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


@pytest.mark.parametrize("module", modules())
def test_imports_run_one_way(module):
    if module in ("bench", "analysis"):
        assert not imports(module), "the packages themselves import nothing"
        return
    own = room(module)
    assert own is not None, f"{module} is in no room of {ROOMS}"
    for imported in imports(module):
        other = room(imported)
        assert imported == "bench" or (other is not None and ROOMS.index(other) <= ROOMS.index(own)), (
            f"{module} imports {imported}, from a later room"
        )


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


@pytest.mark.parametrize("folder", sorted({file.parent for file in modules().values()}), ids=str)
def test_no_folder_has_more_rooms_than_can_be_overlooked(folder):
    files = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
    folders = [inner for inner in folder.iterdir() if (inner / "__init__.py").is_file()]
    assert len(files) + len(folders) <= MOST_ROOMS, [part.name for part in (*files, *folders)]


def test_the_tests_mirror_the_rooms():
    folders = {file.parent for package in PACKAGES for file in (ROOT / "tests" / package).rglob("test_*.py")}
    tested = {".".join(folder.relative_to(ROOT / "tests").parts) for folder in folders}
    assert tested == set(ROOMS)
