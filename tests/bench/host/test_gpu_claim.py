"""Processes share GPUs through locks, here of names that stand for GPUs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedflat.bench.host.gpu_claim import claim, claims_folder
from fedflat.bench.input.errors import UserError

GPUS = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]

HOLD_ONE = """
import sys
from pathlib import Path
from fedflat.bench.host.gpu_claim import claim

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


def foreign(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)


def link(folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)


def link_to_nothing(folder: Path) -> None:
    folder.symlink_to(folder.with_name("missing"))


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


HOSTILE = [
    pytest.param(link, "is a link or a file", id="link"),
    pytest.param(link_to_nothing, "is a link or a file", id="link to nothing"),
    pytest.param(Path.touch, "is a link or a file", id="file"),
    pytest.param(open_to_all, "has the mode 0777", id="open to all"),
    pytest.param(
        foreign, "belongs to another user", id="foreign",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user"),
    ),
]  # fmt: skip


@pytest.fixture
def own(tmp_path):
    return tmp_path / f"fedflat-gpus-{os.geteuid()}"


@pytest.mark.parametrize(("hostile", "what"), HOSTILE)
@pytest.mark.parametrize("runtime", [None, "", ".", "link", "shared"])
def test_a_folder_that_others_may_have_made_is_refused(hostile, what, runtime, own, tmp_path, monkeypatch):
    """Neither is a runtime folder used that the standard forbids: relative, a link, or open to others."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime is not None:
        (tmp_path / "private").mkdir(mode=0o700)
        (tmp_path / "link").symlink_to(tmp_path / "private")
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared").chmod(0o755)
        monkeypatch.chdir(tmp_path / "private")
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime if runtime in ("", ".") else str(tmp_path / runtime))
    hostile(own)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError) as caught:
        claim(GPUS, claims_folder(tmp_path), print)
    assert f"cannot claim a GPU: '{own}' {what}" in str(caught.value)
    assert "--device cuda:0" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before, "no file was made anywhere"


def test_processes_share_a_folder_that_only_their_user_can_enter(own, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    assert claims_folder(tmp_path) == own == claims_folder(tmp_path)
    assert own.stat().st_mode & 0o777 == 0o700


def test_the_runtime_folder_replaces_one_that_others_have_made(own, tmp_path, monkeypatch):
    open_to_all(own)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert claims_folder(tmp_path) == runtime / "fedflat-gpus"


def test_a_lock_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "claims").mkdir(mode=0o700)
    (tmp_path / "claims" / "GPU-b.lock").symlink_to(tmp_path / "missing" / "file")
    with pytest.raises(UserError, match="cannot claim a GPU in"):
        claim(["GPU-b"], tmp_path / "claims", print)
