"""Verification of cells, and the command: all runs are found, and nothing is changed."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from fedflat.analysis.provenance.verify import find
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.host.progress import silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.train import train_cell
from tests.analysis.provenance.test_verify import CELL, CPU, SAVED, with_number
from tests.commands import fedflat
from tests.places import MINI


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of one cell, with states and local models."""
    results = tmp_path_factory.mktemp("verify") / "results"
    cell = load_experiment(MINI, SAVED).cell(CELL)
    train_cell("mini", cell, results, CPU, silent)
    return results


@pytest.fixture
def cell(results: Path, tmp_path: Path) -> Path:
    """A copy of the cell, to be changed."""
    shutil.copytree(results, tmp_path / "results")
    return next((tmp_path / "results").glob(f"store/{CELL}-*"))


def test_nothing_is_changed(results, tmp_path):
    def state() -> dict[Path, tuple[str, int]]:
        files = [file for file in results.rglob("*") if file.is_file()]
        return {file: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in files}

    before = state()
    done = fedflat("verify", results, "--rounds", 2, cwd=tmp_path)
    assert done.returncode == 0, done
    *lines, _ = done.stdout.splitlines()
    [folder] = results.glob(f"store/{CELL}-*")
    assert [line.split(": ")[:2] for line in lines] == [[str(folder / f"seed-{seed}"), "verified"] for seed in (0, 1)]
    assert state() == before
    assert list(tmp_path.iterdir()) == []


def test_the_runs_of_a_list_are_found_also_those_that_are_missing(cell):
    lists = cell.parents[4] / "experiments" / "mini"
    assert find(lists) == [cell / "seed-0", cell / "seed-1"]
    shutil.rmtree(cell / "seed-1")
    assert find(lists) == [cell / "seed-0", cell / "seed-1"]
    assert find(cell) == [cell / "seed-0"]


def test_the_command_names_what_differs_and_the_command_that_makes_it_anew(cell, tmp_path):
    with_number(cell / "seed-1", 5, "test_accuracy", lambda value: value + 1)
    done = fedflat("verify", cell, cwd=tmp_path)
    assert done.returncode == 2
    first, second = done.stdout.splitlines()
    assert first.startswith(f"{cell}/seed-0: verified: ")
    assert "metrics.csv': test_accuracy of round 5 is " in second
    assert second.endswith(": repeat the command that trained the run, with --replace")
    assert done.stderr == f"fedflat: 1 of 2 differ: {cell}/seed-1\n"


def test_a_folder_without_runs(tmp_path):
    os.mkfifo(tmp_path / "config")
    with pytest.raises(UserError, match="no finished run in"):
        find(tmp_path)


def test_a_run_that_was_killed_before_its_last_files_is_no_cell(cell):
    work = shutil.copytree(cell / "seed-0", cell / "seed-2.partial-01234567")
    for name in ("provenance.json", "config.json"):
        (work / name).unlink()
    assert find(cell) == [cell / "seed-0", cell / "seed-1"]
