"""Code is executed in one place, and no pickles are read, as the calls and imports of the whole project show."""

import ast
from collections.abc import Iterator

from tests.places import ROOT

EXECUTES = {
    "exec", "eval", "compile", "__import__", "import_module", "locate", "import_string",
    ".exec", ".eval_module", ".import_module", ".exec_module", ".load_module", ".run_path", ".run_module", ".locate",
}  # fmt: skip
"""Functions, and methods with a point, that execute code or import by name."""

KNOWN = {
    ("bench/code/user_code.py", "exec"), ("bench/code/user_code.py", "compile"),  # behind the gate
    ("bench/code/modules.py", "compile"),  # behind the gate
    ("bench/input/registry.py", ".import_module"),  # packages of FedFlat
    ("fedflat/__init__.py", "import_module"),  # names of FedFlat
    ("fedflat/command_server.py", ".import_module"),  # modules of FedFlat
    ("bench/data/sources/cifar.py", ".import_module"),  # NumPy, for CIFAR's pickles, which have published checksums
    ("bench/host/torchvision_compat.py", ".import_module"),  # torchvision
}  # fmt: skip
PICKLES = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}

RUNNERS = {
    "bench/code/user_function.py": "models and data sets",
    "bench/methods/user_file.py": "methods",
    "fedflat/round_logs.py": "loggers, which only the command line names",
}
"""The files that execute code of users, and what it is."""


def calls() -> Iterator[tuple[str, str]]:
    """The file and the name of every call of a function in the project; names of methods begin with a point."""
    for package in ("bench", "analysis", "fedflat"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.Call):
                    name = node.func.id if isinstance(node.func, ast.Name) else f".{getattr(node.func, 'attr', '')}"
                    yield str(file.relative_to(ROOT)), name


def imported_names() -> Iterator[tuple[str, str]]:
    """The file and the top-level name of every import."""
    for package in ("bench", "analysis", "fedflat"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_bytes())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
                yield from ((str(file.relative_to(ROOT)), name.partition(".")[0]) for name in names)


def test_code_is_executed_in_one_place_only():
    """A new place, or a new kind of code, must pass the gate, and be tried in tests/fedflat/test_code_of_others.py."""
    found = set(calls())
    assert {one for one in found if one[1] in EXECUTES} == KNOWN
    assert {file for file, name in found if name == "run_file"} == set(RUNNERS)


def test_no_pickles_are_read():
    """Those of CIFAR have published checksums; the other file names an error of torch."""
    assert {file for file, name in imported_names() if name in PICKLES} == {
        "bench/data/sources/cifar.py",
        "bench/models/weights.py",
    }
