"""The structure of the project: imports run in one direction and not in circles; the tests mirror the packages."""

import ast
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from studies.imports import PACKAGES, ROOMS, imports, modules, named, room
from tests.places import ROOT


def wrong_imports(module: str) -> list[str]:
    """What is wrong with a module's place and its imports, in words."""
    if module in ("fedflat.bench", "fedflat.analysis"):
        return [f"{module} imports {imported}; the packages themselves import nothing" for imported in imports(module)]
    own = room(module)
    if own is None:
        return [f"{module} is in no room"]
    later = set(ROOMS[ROOMS.index(own) + 1 :])
    return [
        f"{module} imports {imported}, from a later room or from none"
        for imported in imports(module)
        if imported != "fedflat.bench" and room(imported) in {*later, None}
    ]


def test_imports_run_one_way():
    assert [mistake for module in modules() for mistake in wrong_imports(module)] == []


def packages(module: str) -> set[str]:
    """The packages that contain a module."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def test_only_tests_of_studies_import_studies():
    """And those of the benchmarks, which maintainers run, too, and this file: the others test what is installed."""
    files = [file.relative_to(ROOT / "tests") for file in (ROOT / "tests").rglob("*.py") if "studies" in imported(file)]
    assert {file.parts[0] for file in files} <= {"studies", "benchmarks", Path(__file__).name}


def imported(file: Path) -> set[str]:
    """The first parts of the names of all modules that a file imports."""
    nodes = list(ast.walk(ast.parse(file.read_bytes())))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {name.partition(".")[0] for name in names}


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


def test_public_classes_have_names_of_their_own():
    """One name with several meanings would have to be looked up each time that it is read."""
    trees = [ast.parse(file.read_bytes()) for file in modules().values()]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []


def test_the_tests_mirror_the_rooms():
    folders = {file.parent for package in PACKAGES for file in (ROOT / "tests" / package).rglob("test_*.py")}
    tested = {named(folder.relative_to(ROOT / "tests").parts) for folder in folders}
    assert tested == set(ROOMS)


def bound_in(file: Path) -> set[str]:
    """The names that the statements of a module bind: imports, functions, classes and variables."""
    names: set[str] = set()
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return names


def test_no_package_has_another_thing_by_the_name_of_its_module():
    """`import fedflat.bench.methods.recipe as R` would give it instead of the module."""
    packages = {name: file for name, file in modules().items() if file.name == "__init__.py"}
    assert "fedflat.bench.methods" in packages
    inner = {
        name: {other.rpartition(".")[2] for other in modules() if other.rpartition(".")[0] == name} for name in packages
    }
    assert {name: both for name, file in packages.items() if (both := inner[name] & bound_in(file))} == {}
