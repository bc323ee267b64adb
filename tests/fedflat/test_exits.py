"""Whatever a user or the machine can cause ends in one line and exit code 2, or silently; never in a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedflat.explained import explained
from tests.commands import refused
from tests.places import ROOT

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"
TINY = ["--set", "training.rounds=1", "--seed", "0", "--device", "cpu"]
FEDFLAT = [sys.executable, "-m", "fedflat"]
ENDS = """
from fedflat.bench.methods.base import Perturbation
from fedflat.bench.methods.recipe import Components, Recipe

class Ends(Perturbation):
    name = "ends"

    def delta(self, w, gradient, client):
        raise SystemExit(7)

METHOD = Recipe("ends", "Ends", "none", Components(perturbation=Ends))
"""


def experiment(folder: Path, methods: str) -> Path:
    file = folder / "mine.yaml"
    file.write_text(f"name: mine\nextends: quick\nmethods:\n  {methods}\n", encoding="utf-8")
    return file


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_full_disk_behind_the_output():
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - as a shell opens it
        done = subprocess.run([*FEDFLAT, "analyses"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        silent = subprocess.run([*FEDFLAT, "analyses"], stdout=full, stderr=full, check=False)
    assert (done.returncode, done.stderr) == (2, "fedflat: input or output fails: No space left on device\n")
    assert silent.returncode == 2


def test_a_closed_pipe_ends_the_command_silently():
    process = subprocess.Popen([*FEDFLAT, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


def test_an_interrupt_during_the_imports(tmp_path):
    """A module that the command imports sends Ctrl-C to its own process; the import would lose an exception."""
    (tmp_path / "yaml.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException:\n    pass\n",
        encoding="utf-8",
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([*FEDFLAT, "analyses"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fedflat: interrupted\n")


@pytest.mark.long
def test_a_method_that_ends_the_process(tmp_path):
    (tmp_path / "ends.py").write_text(ENDS, encoding="utf-8")
    file = experiment(tmp_path, "ends: {file: ends.py}")
    arguments = (
        "--set",
        "engine.backend=loop",
        "--results",
        tmp_path / "out",
    )  # nothing is timed, and so nothing printed
    line = refused("run", file, CELL.replace("fedsam", "ends"), *TINY, *arguments)
    assert line == f"fedflat: the method file '{tmp_path / 'ends.py'}' fails in line 9: SystemExit: 7"


def test_names_with_line_ends():
    assert r"unknown experiment 'qui\nck'" in refused("run", "qui\nck", CELL)
    assert r"a\nb" in refused("run", "quick", CELL, "--set", "a\nb=3")
    assert r"dig\x1b[31mits" in refused("data", "check", "dig\x1b[31mits")
    assert len(refused("run", "x" * 5000, CELL)) < 1000


def test_devices_are_not_read(tmp_path):
    file = experiment(tmp_path, "mine: {file: /dev/zero}")
    assert "'/dev/zero': it is a device or a pipe (allowed: a file)" in refused("run", file, CELL, *TINY)
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    assert "it is a device or a pipe" in refused("run", tmp_path / "zero.yaml", CELL, *TINY)


def test_a_locale_without_greek_letters(tmp_path):
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    given, out = (tmp_path / os.fsdecode(name.encode()) for name in ("données", "été"))  # this locale, too, may be C
    given.mkdir()
    file = experiment(given, "fedsam: {title: η, hyperparameters: {rho: 0.1}}")
    for words in (["methods", "fedsam"], ["run", str(file), CELL, *TINY, "--results", str(out)]):
        done = subprocess.run([*FEDFLAT, *words], env=env, cwd=tmp_path, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    assert list(out.rglob("config.json"))


def test_an_empty_home_is_no_home():
    """The home folder is then the one of the user's account, and not the root folder of the machine."""
    code = "import os, sys; sys.argv = ['fedflat', 'analyses']; from fedflat.cli.app import command; command(); "
    code += "print(os.path.expanduser('~'), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "HOME": "", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr.strip() not in ("", "/")


def test_memory_that_torch_cannot_allocate_is_one_line():
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000000 bytes.")
    assert explained(error).startswith("the memory does not suffice: DefaultCPUAllocator")
    assert explained(RuntimeError("a mistake of FedFlat")) == "RuntimeError: a mistake of FedFlat\n"
