"""After kill -9 or a closed terminal the same command continues."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import SNAKEMAKE, run
from tests.end_to_end.test_snakemake import CELLS, command
from tests.places import ROOT
from tests.tiers import thorough
from tests.waiting import wait_for

TARGET = f"results/experiments/mini/{CELLS}/fedsam/runs.csv"


def started(folder: Path) -> subprocess.Popen:
    """The command in a session of its own, as in a terminal, after its first checkpoint."""
    words = command(folder, TARGET, rounds=60, results="results")
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        [sys.executable, "-m", "snakemake", *SNAKEMAKE, *words[1:]], start_new_session=True, **silent
    )
    checkpoints = "results/store/**/checkpoint.safetensors"
    wait_for(lambda: list(folder.glob(checkpoints)), 120, alive=lambda: process.poll() is None)
    return process


ENDS = [
    pytest.param(signal.SIGKILL, marks=thorough, id="kill -9"),
    pytest.param(signal.SIGHUP, id="a closed terminal"),
]


@pytest.mark.long
@pytest.mark.parametrize("end", ENDS)
def test_the_same_command_continues(end, tmp_path):
    process = started(tmp_path)
    os.killpg(process.pid, end)
    process.wait(timeout=60)
    assert list((tmp_path / ".snakemake" / "locks").glob("*.lock")), "they are left"
    assert not (tmp_path / TARGET).exists()
    done = run(command(tmp_path, TARGET, rounds=60, results="results"))
    assert done.returncode == 0, done
    [log] = tmp_path.glob(f"results/store/{CELLS}/fedsam-*/seed-0/run.log")
    assert "resumed after round" in log.read_text(encoding="utf-8")


@pytest.mark.long
def test_documented_commands_of_snakemake_work(tmp_path):
    """As they stand on the page; test_snakemake.py writes the report, for which everything must be finished."""
    text = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    unlock, report = re.findall(r"`(snakemake [^`\n]*--(?:unlock|report)[^`\n]*)`", text)
    assert run([*unlock.split(), "--directory", str(tmp_path)]).returncode == 0
    done = run([*report.split(), "--directory", str(tmp_path)])
    assert "index.html marked for report but does not exist" in done.stderr
