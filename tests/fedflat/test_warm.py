"""The warm process: commands that it runs end as they would by themselves, and nothing of it is left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fedflat import warm
from tests.places import ROOT

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no warm process here")

START = """
import os, sys
from fedflat import warm

warm.start()
print(os.environ[warm.VARIABLE], flush=True)
sys.stdin.read()
"""

NETWORK = """
import os
from pathlib import Path
from torch import nn
from tests.places import ROOT

Path("parent").write_text(str(os.getppid()))

def build(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 900), nn.ReLU(), nn.Linear(900, classes))
"""
"""Large enough for threads to share its products. It tells which process has started the one that it runs in."""


def started(arguments: tuple[object, ...], environment: dict[str, str], **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "fedflat", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment, **pipes, **options)


class Warm:
    """A process that has started a warm one."""

    def __init__(self, source: Path = ROOT) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(source)}
        self.starter = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment, cwd=source,
        )  # fmt: skip
        self.folder = Path(self.starter.stdout.readline().strip())
        [self.server] = psutil.Process(self.starter.pid).children()
        self.environment[warm.VARIABLE] = str(self.folder)

    def fedflat(self, *arguments: object, **options) -> subprocess.Popen:
        return started(arguments, self.environment, **options)

    def ends(self) -> bool:
        """Whether the server, all that it runs and its folder are gone soon."""
        processes = [self.server, *self.server.children(recursive=True)] if self.server.is_running() else []
        gone = not psutil.wait_procs(processes, timeout=60)[1]
        return gone and not self.folder.exists()


@pytest.fixture(scope="module")
def shared():
    process = Warm()
    yield process
    process.starter.communicate()
    assert process.ends()


@pytest.fixture
def own():
    process = Warm()
    yield process
    process.starter.communicate()


def alone(*arguments: object, **options) -> subprocess.Popen:
    return started(arguments, {**os.environ, "PYTHONPATH": str(ROOT)}, **options)


def test_the_same_bits_as_a_new_process_with_any_number_of_threads(shared, tmp_path):
    (tmp_path / "net.py").write_text(NETWORK)
    changes = [f"model={tmp_path / 'net.py'}:build", "training.rounds=1", "training.batch_size=50"]
    settings = [f"--set={change}" for change in changes]
    parents = {}
    for threads in (1, 2):
        arguments = ["run", "quick", CELL, *settings, "--seed", 0, "--device", "cpu", "--threads", threads]
        for name, start in (("warm", shared.fedflat), ("alone", alone)):
            out = tmp_path / f"{name}-{threads}"
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            process = start(*arguments, "--out", out, cwd=folder)
            printed, errors = process.communicate()
            assert process.returncode == 0, errors
            assert "seed-0" in printed
            parents[name] = int((folder / "parent").read_text())
        ours, alones = (tmp_path / f"{name}-{threads}" / "seed-0" for name in ("warm", "alone"))
        for file in ("final.safetensors", "metrics.csv", "config.json"):
            assert (ours / file).read_bytes() == (alones / file).read_bytes()
        provenance, expected = (json.loads((run / "provenance.json").read_text()) for run in (ours, alones))
        assert provenance["threads"] == provenance["engine"]["threads"] <= threads
        for measured in ("seconds", "process_peak_memory_mib"):
            del provenance[measured], expected[measured]
        assert provenance == expected
    assert parents == {"warm": shared.server.pid, "alone": os.getpid()}


@pytest.mark.parametrize("arguments", [["methods", "fedsam"], ["data", "list"], ["methods", "nix"], ["run", "--seed"]])
def test_what_a_command_says_and_its_exit_code(arguments, shared, tmp_path):
    ours, expected = (start(*arguments, cwd=tmp_path) for start in (shared.fedflat, alone))
    assert ours.communicate() == expected.communicate()
    assert ours.returncode == expected.returncode


def training(process: Warm, out: Path) -> tuple[subprocess.Popen, psutil.Process]:
    """A command that would train for minutes, and the server's fork that does, after its first checkpoint."""
    command = process.fedflat(
        "run", "quick", CELL, "--set", "training.rounds=5000", "--seed", 0, "--device", "cpu", "--out", out
    )
    deadline = time.monotonic() + 90
    while not list(out.glob("seed-0.partial-*/checkpoint.safetensors")):
        assert command.poll() is None, command.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    [fork] = process.server.children()
    return command, fork


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_command_ends_the_fork(number, shared, tmp_path):
    command, fork = training(shared, tmp_path)
    command.send_signal(number)
    errors = command.communicate(timeout=60)[1]
    expected = (130, "fedflat: interrupted\n") if number == signal.SIGINT else (-number, "")
    assert (command.returncode, errors) == expected
    psutil.wait_procs([fork], timeout=60)
    assert not fork.is_running()
    assert shared.fedflat("methods", "fedsam").wait() == 0, "the server goes on"


def test_the_command_ends_as_its_fork_does(shared, tmp_path):
    command, fork = training(shared, tmp_path)
    fork.kill()
    assert command.wait(timeout=60) == -signal.SIGKILL


def test_nothing_is_left_of_a_starter_that_is_killed(own, tmp_path):
    command, fork = training(own, tmp_path)
    own.starter.kill()
    assert own.ends()
    assert not fork.is_running()
    assert command.wait(timeout=60) == -signal.SIGKILL


def test_a_killed_server_takes_its_forks_along_and_later_commands_run_by_themselves(own, tmp_path):
    command, fork = training(own, tmp_path)
    own.server.kill()
    assert command.wait(timeout=60) == -signal.SIGKILL
    psutil.wait_procs([fork], timeout=60)
    assert not fork.is_running()
    assert own.fedflat("methods", "fedsam").wait() == 0


def test_after_an_edit_of_the_sources_commands_run_by_themselves(tmp_path):
    for package in ("bench", "analysis", "fedflat"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    process = Warm(tmp_path)
    told = [process.fedflat("methods", "nix", cwd=tmp_path).communicate()[1]]
    source = tmp_path / "bench" / "methods" / "catalog.py"
    source.write_text(source.read_text().replace('"method"', '"kind of method"'))
    told.append(process.fedflat("methods", "nix", cwd=tmp_path).communicate()[1])
    process.starter.communicate()
    assert process.ends()
    assert told[0].startswith("fedflat: unknown method 'nix'")
    assert told[1].startswith("fedflat: unknown kind of method 'nix'")
