"""Snakemake's locks are removed if no process is at work in the folder, and stay otherwise."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedflat.analysis.planning import left_locks
from fedflat.analysis.planning.left_locks import begin_work
from tests.places import ROOT

WORKS = """
import sys
from pathlib import Path
from fedflat.analysis.planning.left_locks import begin_work

begin_work(Path(sys.argv[1]))
print("at work", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    """Snakemake's folder, with the locks of a process that was killed."""
    locks = tmp_path / ".snakemake" / "locks"
    locks.mkdir(parents=True)
    for kind in ("input", "output"):
        (locks / f"0.{kind}.lock").write_text("results/a.csv\n", encoding="utf-8")
    return tmp_path / ".snakemake"


def at_work(folder: Path) -> subprocess.Popen:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", WORKS, str(folder)], cwd=ROOT, **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == b"at work\n"
    return process


def locked(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "locks").glob("*"))


def test_locks_of_killed_processes_are_removed(folder):
    process = at_work(folder)
    assert locked(folder) == []
    process.kill()
    process.communicate()


def test_locks_stay_while_another_process_is_at_work(folder):
    """Also if a second one has begun and ended meanwhile."""
    first = at_work(folder)
    (folder / "locks" / "0.output.lock").write_text("results/a.csv\n", encoding="utf-8")
    second = at_work(folder)
    second.kill()
    second.communicate()
    assert locked(folder) == ["0.output.lock"]
    first.kill()
    first.communicate()
    at_work(folder).kill()
    assert locked(folder) == []


def test_nothing_is_removed_where_locks_do_not_hold_between_machines(folder, monkeypatch):
    monkeypatch.setattr(left_locks, "locks_on_this_machine_only", lambda folder: "'/' is mounted as nfs, nolock")
    begin_work(folder)
    assert locked(folder) == ["0.input.lock", "0.output.lock"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    begin_work(tmp_path / "file" / ".snakemake")
    assert [file.read_text(encoding="utf-8") for file in tmp_path.iterdir()] == ["in the way"]
