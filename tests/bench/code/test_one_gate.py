"""Code is executed in one place, and no pickles are read, as the calls and imports of the whole project show."""

import ast
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import TypeVar

from tests.places import ROOT

T = TypeVar("T", bound=ast.AST)

EXECUTES = {
    "exec", "eval", "compile", "__import__", "import_module", "locate", "import_string",
    ".exec", ".eval_module", ".import_module", ".exec_module", ".load_module", ".run_path", ".run_module", ".locate",
}  # fmt: skip
"""Functions, and methods with a point, that execute code or import by name."""

KNOWN = {
    ("bench/code/user_code.py", "exec"), ("bench/code/present_names.py", "compile"),  # behind the gate
    ("bench/input/registry.py", ".import_module"),  # packages of FedFlat
    ("fedflat/__init__.py", "import_module"),  # names of FedFlat
    ("fedflat/command_server.py", ".import_module"),  # modules of FedFlat
    ("bench/data/sources/cifar.py", ".import_module"),  # NumPy, for CIFAR's pickles, which have published checksums
    ("bench/host/torchvision_compat.py", ".import_module"),  # torchvision
}  # fmt: skip
PICKLES = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
READS_PICKLES = {"read_pickle", "load_state_dict_from_url"}
SAFE = {"allow_pickle": "False", "weights_only": "True"}
"""The only allowed value of each argument."""

LOADS = {"np.load": "allow_pickle", "torch.load": "weights_only"}
"""Functions that must be given such an argument."""

STARTS_PROCESSES = {"bench/training/code_version.py", "fedflat/command_server.py", "fedflat/workflow/rules.smk"}
"""For git; for FedFlat's own commands; and the rules import an error only."""

SNAKEFILES = ("Snakefile", "fedflat/workflow/rules.smk")

RUNNERS = {
    "bench/code/user_function.py": "models, data sets and metrics",
    "bench/methods/user_file.py": "methods",
    "fedflat/round_logs.py": "loggers, which only the command line names",
}
"""The files that execute code of users, and what it is."""


@cache
def trees() -> Mapping[str, ast.Module]:
    """All Python modules of the project, by file."""
    files = [file for package in ("bench", "analysis", "fedflat") for file in sorted((ROOT / package).rglob("*.py"))]
    return {str(file.relative_to(ROOT)): ast.parse(file.read_bytes()) for file in files}


def tokens_of(snakefile: str) -> list[str]:
    with (ROOT / snakefile).open("rb") as lines:
        return [token.string for token in tokenize.tokenize(lines.readline) if token.string.strip()]


def nodes(kind: type[T]) -> Iterator[tuple[str, T]]:
    """All nodes of a kind, with their file."""
    for file, tree in trees().items():
        yield from ((file, node) for node in ast.walk(tree) if isinstance(node, kind))


def calls() -> Iterator[tuple[str, str]]:
    """The file and the name of every call of a function in the project; names of methods begin with a point."""
    for file, node in nodes(ast.Call):
        yield file, node.func.id if isinstance(node.func, ast.Name) else f".{getattr(node.func, 'attr', '')}"
    for snakefile in SNAKEFILES:
        words = tokens_of(snakefile)
        for before, name, after in zip(words, words[1:], words[2:], strict=False):
            if after == "(":
                yield snakefile, f".{name}" if before == "." else name


def imported_names() -> Iterator[tuple[str, str]]:
    """The file and the top-level name of every import."""
    for file, imported in nodes(ast.Import):
        yield from ((file, alias.name.partition(".")[0]) for alias in imported.names)
    for file, node in nodes(ast.ImportFrom):
        if node.module:
            yield file, node.module.partition(".")[0]
    for snakefile in SNAKEFILES:
        names = pairwise(tokens_of(snakefile))
        yield from ((snakefile, name) for word, name in names if word in ("from", "import"))


def test_code_is_executed_in_one_place_only():
    """A new place, or a new kind of code, must pass the gate, and be tried in tests/fedflat/test_code_of_others.py."""
    found = set(calls())
    assert {one for one in found if one[1] in EXECUTES} == KNOWN
    assert {file for file, name in found if name == "run_file"} == set(RUNNERS)


def test_the_gate_has_one_name():
    """Nothing executes code by another name: as an attribute of a module, or as an alias."""
    names = {name.lstrip(".") for name in EXECUTES} | {"run_file"}
    imports = [(file, alias) for file, node in nodes(ast.ImportFrom) for alias in node.names]
    assert not [(file, alias.name) for file, alias in imports if alias.asname and alias.name in names]
    attributes = {file for file, node in nodes(ast.Attribute) if node.attr == "run_file"}
    assert attributes | {file for file, node in nodes(ast.Name) if node.id == "run_file"} == set(RUNNERS)


def test_no_stored_text_becomes_a_process():
    assert {file for file, name in imported_names() if name == "subprocess"} == STARTS_PROCESSES
    starting = re.compile(r"os\.(system|popen|spawn\w+|exec\w+|posix_spawn\w*|startfile)")
    assert not [file for file, call in nodes(ast.Call) if starting.fullmatch(ast.unparse(call.func))]


def test_no_pickles_are_read():
    """Those of CIFAR have published checksums; the other file names an error of torch."""
    assert {file for file, name in imported_names() if name in PICKLES} == {
        "bench/data/sources/cifar.py",
        "bench/models/weights.py",
    }
    assert not [one for one in calls() if one[1].lstrip(".") in READS_PICKLES]
    for file, call in nodes(ast.Call):
        given = {str(keyword.arg): ast.unparse(keyword.value) for keyword in call.keywords}
        needed = LOADS.get(ast.unparse(call.func))
        assert needed is None or needed in given, file
        assert all(given[name] == value for name, value in SAFE.items() if name in given), file
