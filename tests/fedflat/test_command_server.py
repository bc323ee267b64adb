"""The command server: the same output and the same bits as a new process, and nothing is left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from fedflat import command_server
from fedflat.bench.host.threads import ONE_THREAD
from fedflat.command_server import SERVER, CommandServer
from tests.places import ROOT
from tests.tiers import thorough
from tests.waiting import wait_for

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
    found = set()
    for process in psutil.Process().children():
        with suppress(psutil.Error):  # one of another test that is ending
            if process.name() == SERVER.decode():
                found.add(process)
    return found


def alone(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fedflat", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


AS_IN_THE_SNAKEFILE = """
import json, sys
import fedflat.analysis.planning.workflow
from fedflat.command_server import CommandServer
fedflat = CommandServer()
log, *commands = sys.argv[1:]
for command in commands:
    fedflat([log], *json.loads(command))
"""
"""The server is a fork of a process that has loaded torch, and computed nothing."""


@thorough
def test_the_same_bits_as_a_new_process_with_any_number_of_threads(tmp_path):
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    changes = [f"model={tmp_path / 'net.py'}:build", "training.rounds=1", "training.batch_size=50"]
    arguments = ["run", "quick", CELL, *(f"--set={change}" for change in changes), "--seed=0", "--device=cpu"]
    commands = [[*arguments, f"--threads={threads}", "--results", f"{tmp_path}/fork-{threads}"] for threads in (1, 2)]
    command = [sys.executable, "-c", AS_IN_THE_SNAKEFILE, str(tmp_path / "log"), *map(json.dumps, commands)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, check=True)
    for threads in (1, 2):
        assert alone(*arguments, f"--threads={threads}", "--results", tmp_path / f"alone-{threads}").returncode == 0
        ours, theirs = (next((tmp_path / f"{name}-{threads}").rglob("seed-0")) for name in ("fork", "alone"))
        for file in ("final.safetensors", "metrics.csv", "config.json"):
            assert (ours / file).read_bytes() == (theirs / file).read_bytes()
        provenance, expected = (
            json.loads((run / "provenance.json").read_text(encoding="utf-8")) for run in (ours, theirs)
        )
        for measured in ("ended", "seconds", "process_peak_memory_mib", "checksum"):
            del provenance[measured], expected[measured]
        for one in (provenance, expected):
            del one["tables"]["times.csv"]
        assert provenance == expected


def test_output_and_exit_code_of_a_command(fedflat, tmp_path):
    log = tmp_path / "log"
    fedflat([log], "methods", "fedsam")
    assert log.read_text(encoding="utf-8") == "fedflat methods fedsam\n" + alone("methods", "fedsam").stdout
    with pytest.raises(subprocess.CalledProcessError, match="non-zero exit status 2"):
        fedflat([log], "methods", "nix")
    assert log.read_text(encoding="utf-8") == "fedflat methods nix\n" + alone("methods", "nix").stderr


def begun(results: Path, server: psutil.Process) -> psutil.Process:
    """The fork that trains a run, after its first checkpoint."""
    wait_for(lambda: list(results.rglob("seed-0.partial-*/checkpoint.safetensors")), 90)
    [fork] = server.children()
    return fork


LONG = ("run", "quick", CELL, "--set=training.rounds=5000", "--set=engine.checkpoint_seconds=0")
LONG += ("--seed=0", "--device=cpu", "--results")
"""A command that takes minutes, and writes a checkpoint after each round."""


def test_a_killed_command_fails_and_the_server_goes_on(tmp_path):
    before, fedflat = servers(), CommandServer()
    fedflat([tmp_path / "log"], "methods", "fedsam")
    [server] = servers() - before
    killer = threading.Thread(target=lambda: begun(tmp_path / "run", server).kill())
    killer.start()
    with pytest.raises(subprocess.CalledProcessError) as error:
        fedflat([tmp_path / "log"], *LONG, tmp_path / "run")
    killer.join()
    assert error.value.returncode == -signal.SIGKILL
    fedflat([tmp_path / "log"], "methods", "fedsam")
    assert server in servers()


def test_without_the_server_commands_run_in_new_processes(tmp_path):
    before, fedflat = servers(), CommandServer()
    fedflat([tmp_path / "log"], "methods", "fedsam")
    [process] = servers() - before
    process.kill()
    process.wait()
    fedflat([tmp_path / "log"], "methods", "fedsam")
    assert "FedSAM" in (tmp_path / "log").read_text(encoding="utf-8")


def test_a_command_that_a_dying_server_has_received_runs_in_a_new_process(tmp_path, monkeypatch):
    def dying(requests: socket.socket, commands: socket.socket) -> None:
        commands.close()
        time.sleep(0.5)

    monkeypatch.setattr(command_server, "_serve", dying)
    CommandServer()([tmp_path / "log"], "methods", "fedsam")
    assert "FedSAM" in (tmp_path / "log").read_text(encoding="utf-8")


def test_the_server_and_its_forks_end_with_the_process_that_started_them(tmp_path):
    code = "import sys; from fedflat.command_server import CommandServer; CommandServer()(sys.argv[1:2], *sys.argv[2:])"
    command = [sys.executable, "-c", code, str(tmp_path / "log"), *LONG, str(tmp_path / "run")]
    starter = subprocess.Popen(command, cwd=ROOT)
    try:
        while not (children := psutil.Process(starter.pid).children()):
            time.sleep(0.01)
        [server] = children
        fork = begun(tmp_path / "run", server)
    finally:
        starter.kill()
        starter.wait()
    assert not psutil.wait_procs([server, fork], timeout=60)[1]
