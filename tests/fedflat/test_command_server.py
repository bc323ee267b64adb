"""The command server: the same output and the same bits as a new process, and nothing is left behind."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from fedflat.command_server import CommandServer
from tests.places import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands run in new processes here")

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"
NETWORK = """
from torch import nn

def build(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 900), nn.ReLU(), nn.Linear(900, classes))
"""
"""Large enough for threads to share its products."""


@pytest.fixture(scope="module")
def fedflat() -> CommandServer:
    return CommandServer()


def servers() -> set[psutil.Process]:
    return {p for p in psutil.Process().children() if "fedflat.command_server" in p.cmdline()}


def alone(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fedflat", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_same_bits_as_a_new_process_with_any_number_of_threads(fedflat, tmp_path):
    (tmp_path / "net.py").write_text(NETWORK)
    changes = [f"model={tmp_path / 'net.py'}:build", "training.rounds=1", "training.batch_size=50"]
    for threads in (1, 2):
        arguments = ["run", "quick", CELL, *(f"--set={change}" for change in changes)]
        arguments += ["--seed", 0, "--device", "cpu", "--threads", threads, "--out"]
        fedflat([tmp_path / "log"], *arguments, tmp_path / f"fork-{threads}")
        assert alone(*arguments, tmp_path / f"alone-{threads}").returncode == 0
        ours, theirs = (tmp_path / f"{name}-{threads}" / "seed-0" for name in ("fork", "alone"))
        for file in ("final.safetensors", "metrics.csv", "config.json"):
            assert (ours / file).read_bytes() == (theirs / file).read_bytes()
        provenance, expected = (json.loads((run / "provenance.json").read_text()) for run in (ours, theirs))
        for measured in ("seconds", "process_peak_memory_mib"):
            del provenance[measured], expected[measured]
        assert provenance == expected


def test_output_and_exit_code_of_a_command(fedflat, tmp_path):
    log = tmp_path / "log"
    fedflat([log], "methods", "fedsam")
    assert log.read_text() == "fedflat methods fedsam\n" + alone("methods", "fedsam").stdout
    with pytest.raises(subprocess.CalledProcessError, match="non-zero exit status 2"):
        fedflat([log], "methods", "nix")
    assert log.read_text() == "fedflat methods nix\n" + alone("methods", "nix").stderr


def test_a_killed_command_fails_and_the_server_goes_on(fedflat, tmp_path):
    fedflat([tmp_path / "log"], "methods", "fedsam")

    def kill() -> None:
        while not list(tmp_path.glob("run/seed-0.partial-*")):  # the first command's fork has ended then
            time.sleep(0.01)
        for fork in (fork for server in servers() for fork in server.children()):
            fork.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(subprocess.CalledProcessError) as error:
        fedflat([tmp_path / "log"], "run", "quick", CELL, "--set=training.rounds=5000", "--out", tmp_path / "run")
    killer.join()
    assert error.value.returncode == -signal.SIGKILL
    fedflat([tmp_path / "log"], "methods", "fedsam")


def test_without_the_server_commands_run_in_new_processes(tmp_path):
    fedflat = CommandServer()
    before = servers()
    fedflat([tmp_path / "log"], "methods", "fedsam")
    [process] = servers() - before
    process.kill()
    process.wait()
    fedflat([tmp_path / "log"], "methods", "fedsam")
    assert "FedSAM" in (tmp_path / "log").read_text()


def test_the_server_ends_with_the_process_that_started_it(tmp_path):
    code = (
        "import psutil, sys\nfrom fedflat.command_server import CommandServer\n"
        "CommandServer()([sys.argv[1]], 'methods', 'fedsam')\nprint(psutil.Process().children()[0].pid)"
    )
    command = [sys.executable, "-c", code, str(Path(tmp_path, "log"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    deadline = time.monotonic() + 60
    while psutil.pid_exists(int(done.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
