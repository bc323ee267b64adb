"""Processes share GPUs through locks, here of names that stand for GPUs."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.host.gpu_claim import claim
from bench.input.errors import UserError

GPUS = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]

HOLD_ONE = """
import sys
from pathlib import Path
from bench.host.gpu_claim import claim

folder, *gpus = sys.argv[1:]
report = lambda line: print(line, flush=True)
one = claim(gpus, Path(folder), report)
assert claim(gpus, Path(folder), report) == one, "the same one, without waiting for itself"
print(one, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold(tmp_path):
    """Start a process that claims a GPU and keeps it until its stdin is closed."""
    processes = []

    def start(gpus: list[str]) -> subprocess.Popen:
        command = [sys.executable, "-c", HOLD_ONE, str(tmp_path / "claims"), *gpus]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        with process:
            process.kill()


@pytest.mark.parametrize("killed", [False, True], ids=["ends", "is killed"])
def test_four_processes_share_four_gpus_and_a_fifth_waits_until_one(killed, hold):
    four = [hold(GPUS) for _ in range(4)]
    holder = {int(process.stdout.readline()): process for process in four}
    assert sorted(holder) == [0, 1, 2, 3]
    fifth, sixth = hold(GPUS), hold(GPUS[3:])
    assert "waiting for a GPU: other processes hold cuda:0, cuda:1, cuda:2, cuda:3" in fifth.stdout.readline()
    assert "other processes hold cuda:0 (" in sixth.stdout.readline(), "GPU-d is the first of those that it sees"
    if killed:
        holder[1].kill()
    else:
        holder[1].stdin.close()
    assert fifth.stdout.readline() == "1\n"
    holder[3].kill()
    assert sixth.stdout.readline() == "0\n"


def test_a_folder_that_cannot_be_used_is_reported(tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(UserError, match="cannot claim a GPU in"):
        claim(GPUS, Path(tmp_path / "file"), print)
