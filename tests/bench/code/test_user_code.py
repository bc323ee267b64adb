"""Code of users is executed only if its content is trusted; looking for a module imports nothing."""

import importlib
import importlib.util
import marshal
import sys
from importlib._bootstrap_external import _code_to_hash_pyc
from pathlib import Path

import pytest

from fedflat.bench.code.module_places import found
from fedflat.bench.code.modules import checked_imports
from fedflat.bench.code.named_code import require_trusted_names, trust_file, trust_named
from fedflat.bench.code.trusted_code import UntrustedCodeError, is_trusted, trust
from fedflat.bench.code.user_code import run_file
from fedflat.bench.data.sources.arrays import ArrayFunction
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.user_file import recipe_from_file
from fedflat.bench.models.user_model import UserModel
from fedflat.round_logs import RunLogs
from tests.strangers import LEAVES_A_TRACE, become_another_user, executed


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The current folder of a user who trusts nothing."""
    become_another_user(tmp_path / "cache", monkeypatch)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def written(file: Path, text: str = LEAVES_A_TRACE) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_only_trusted_content_is_executed(folder):
    """Wherever it is, and not what is at the place of trusted code."""
    file = written(folder / "a.py")
    with pytest.raises(UntrustedCodeError, match=r"^the model file '.*a.py' is code that no experiment here has named"):
        run_file(file, file.read_bytes(), "model file")
    assert executed(folder) == []
    trust(file.read_bytes())
    with pytest.raises(UntrustedCodeError):
        run_file(file, b"x = 1\n", "model file")
    assert run_file(Path("elsewhere.py"), b"" + file.read_bytes(), "model file").__name__.startswith(
        "fedflat_user_else"
    )


@pytest.mark.parametrize(
    "module", ["evil", "evil.part", "evil.deep.part", "evil.absent", "absent", "", ".evil", "a..b"]
)
def test_looking_for_a_module_imports_nothing(module, folder, monkeypatch):
    for name in ("evil/__init__.py", "evil/part.py", "evil/deep/__init__.py", "evil/deep/part.py"):
        written(folder / name)
    for place in ([], [str(folder)]):
        monkeypatch.setattr(sys, "path", [*place, *sys.path])
        spec = found(module)
        is_there = module.startswith("evil") and "absent" not in module
        assert (spec is not None) == is_there
    assert executed(folder) == []
    assert not [name for name in sys.modules if name.startswith("evil")]


SPELLINGS = {
    "file": lambda file: {"method": {"file": str(file)}},
    "path": lambda file: {"method": {"file": file}},
    "short": lambda file: {"parts": {"a": {"model": f"{file}:build"}}},
    "module": lambda file: [{"module": f"{file.parent.name}.{file.stem}", "function": "build"}],
    "short module": lambda file: {"dataset": {"name": f"{file.parent.name}.{file.stem}:build"}},
    "text": lambda file: f"{file}:build",
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_an_experiment_names_code_in_every_spelling(spelling, folder):
    """All of it becomes trusted if the experiment is the user's; that of a stored one must be."""
    file = written(folder / "package" / "part.py")
    with pytest.raises(UntrustedCodeError, match=r"part.py' is code that no experiment here has named: .* with this$"):
        require_trusted_names(spelling(file), "this")
    trust_named(spelling(file))
    require_trusted_names(spelling(file), "this")
    assert is_trusted(file.read_bytes())
    assert executed(folder) == []


def test_what_is_no_code_is_not_trusted(folder):
    """Other files, text that looks like a reference, and files that do not exist."""
    text = written(folder / "a.txt")
    trust_named(
        {"file": "a.txt", "title": "a: b", "n": 3, "other": ["x:y", None, {"module": "absent", "file": "b.py"}]}
    )
    require_trusted_names({"file": "absent.py", "model": "absent:f"}, "this")
    assert not is_trusted(text.read_bytes())
    assert executed(folder) == []


def test_trust_includes_what_is_imported_from_the_current_folder(folder):
    written(folder / "helper.py", "VALUE = 1\n")
    written(folder / "tools" / "__init__.py", "")
    written(folder / "tools" / "inner.py", "import helper\nVALUE = helper.VALUE\n")
    file = written(folder / "sub" / "net.py", "import numpy\nfrom tools.inner import VALUE\n")
    trust_file(file, "model file")
    try:
        with checked_imports(from_current_folder=True):
            assert run_file(file, file.read_bytes(), "model file").VALUE == 1
    finally:
        for name in ("helper", "tools", "tools.inner"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["helper.py", "helper/__init__.py", "helper/part.py"])
@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("on_path", [False, True])
def test_trusted_code_imports_no_untrusted_module_of_the_current_folder(name, on_path, is_link, folder, monkeypatch):
    """Also if Python's path has that folder, as in a notebook."""
    source = b"import helper.part\n" if name == "helper/part.py" else b"import helper\n"
    trust(source)
    if name == "helper/part.py":
        trust(written(folder / "helper" / "__init__.py", "").read_bytes())
    written(folder / name)
    if is_link:
        (folder / name).rename(folder.parent / "real.py")
        (folder / name).symlink_to(folder.parent / "real.py")
    if on_path:
        monkeypatch.syspath_prepend(str(folder))
    with (
        checked_imports(from_current_folder=True),
        pytest.raises(UserError, match=r"fails in line 1: the module '.*' is code that no experiment here has named"),
    ):
        run_file(Path("net.py"), source, "model file")
    assert executed(folder.parent) == []
    sys.modules.pop("helper", None)


LATER = """
def direct():
    import helper

def by_name():
    from importlib import import_module
    import_module("helper")

def through_another():
    import trusted
    trusted.later()
"""


@pytest.mark.parametrize("function", ["direct", "by_name", "through_another"])
def test_imports_within_functions_are_checked_when_they_are_executed(function, folder, monkeypatch):
    """Long after the file, with the current folder on Python's path, as in a notebook; whose own imports are free."""
    trust(LATER.encode())
    trust(written(folder / "trusted.py", "def later():\n    import helper\n").read_bytes())
    written(folder / "helper.py")
    monkeypatch.syspath_prepend(str(folder))
    module = run_file(Path("net.py"), LATER.encode(), "model file")
    try:
        with pytest.raises(UntrustedCodeError, match=r"helper.py' is code that no experiment here has named"):
            getattr(module, function)()
        assert executed(folder) == []
        importlib.import_module("helper")
        assert executed(folder) == ["helper.py"]
    finally:
        for name in ("helper", "trusted"):
            sys.modules.pop(name, None)


NAMES = """
from shutil import rmtree
from os import *
import functools

def build(shape, classes):
    return shape

partial = functools.partial(build, classes=3)
"""


def test_a_configuration_chooses_among_the_functions_that_a_file_defines(folder):
    """A file that is trusted is no reason to call what it imports."""
    file = written(folder / "net.py", NAMES)
    trust(file.read_bytes())

    def result(function: str, **place: str) -> object:
        return UserModel(function=function, **place or {"file": str(file)}).call(
            (1,), *[2] * (function == "build"), then=id
        )

    assert result("build") == result("partial")
    for name in ("rmtree", "mkdir"):
        with pytest.raises(
            UserError, match=rf"net.py' imports '{name}' from elsewhere \(allowed: a function that it de"
        ):
            result(name)
    with pytest.raises(UserError, match=r"unknown function of the model file .* 'biuld'; did you mean 'build'"):
        result("biuld")
    for part, text in (("part", NAMES), ("__init__", "from own_nets.part import build, rmtree\n")):
        trust(written(folder / "own_nets" / f"{part}.py", text).read_bytes())
    try:
        assert result("build", module="own_nets") == result("build")
        with pytest.raises(UserError, match="imports 'rmtree' from elsewhere"):
            result("rmtree", module="own_nets")
    finally:
        for name in ("own_nets", "own_nets.part"):
            sys.modules.pop(name, None)


def test_bytecode_of_somebody_else_is_not_used(folder):
    """A cached file may say that it is not to be compared with its source."""
    helper = written(folder / "helper.py", "VALUE = 1\n")
    cached = Path(importlib.util.cache_from_source(str(helper)))
    cached.parent.mkdir()
    evil = compile(LEAVES_A_TRACE + "VALUE = 2\n", str(helper), "exec")
    assert marshal.dumps(evil)
    cached.write_bytes(_code_to_hash_pyc(evil, importlib.util.source_hash(helper.read_bytes()), False))
    source = b"import helper\nVALUE = helper.VALUE\n"
    trust(source)
    trust(helper.read_bytes())
    try:
        with checked_imports(from_current_folder=True):
            assert run_file(Path("net.py"), source, "model file").VALUE == 1
    finally:
        sys.modules.pop("helper", None)
    assert executed(folder) == []


IMPORTS = {
    "from helpers import f": "helpers.py",
    "import helpers.part": "helpers.py",
    "from .helpers import f": ".helpers",
    "from . import helpers": ".helpers",
    "from ..absent import f": "..absent",
}
"""Imports of what is, or could be, next to a file; and what the message names."""

KINDS = {
    "method file": recipe_from_file,
    "model file": lambda file: UserModel(file=file, function="build").call(then=id),
    "data set file": lambda file: ArrayFunction(file=file, function="build").call(then=id),
    "logger": lambda file: RunLogs(f"{file}:build", file.parent),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statement", IMPORTS)
def test_a_file_that_imports_another_one_of_its_folder_is_one_line(kind, statement, folder):
    """From any current folder: a file is executed alone, and only its hash is part of a run's identity."""
    written(folder / "mine" / "helpers.py", "f = 1\n")
    for begin in ("", "import math\ndef build():\n    "):
        file = written(folder / "mine" / "net.py", f"{begin}{statement}\n")
        trust(file.read_bytes())
        if not begin or kind in ("model file", "data set file"):
            with pytest.raises(UserError) as refused:
                KINDS[kind](file)
            assert str(refused.value) == (
                f"the {kind} '{file}' imports '{IMPORTS[statement]}' in line {1 + begin.count(chr(10))}: edits of that "
                "file would not be noticed (allowed: installed packages and FedFlat's; move the code into one file)"
            )


def test_an_import_that_fails_for_another_reason_is_reported_as_it_is(folder):
    reasons = {"import absent": "No module named 'absent'", "from os import absent": "cannot import name 'absent'"}
    for statement, why in reasons.items():
        file = written(folder / "net.py", f"{statement}\n")
        trust(file.read_bytes())
        with pytest.raises(UserError, match=f"^the model file '.*net.py' fails in line 1: .*Error: {why}"):
            run_file(file, file.read_bytes(), "model file")
