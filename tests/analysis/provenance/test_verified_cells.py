"""Verification of cells, and the command: metrics of a cell are those of its runs, and nothing is changed."""

import hashlib
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.provenance.verify import find, verify_cell
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import write_checked_csv
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
    train_cell("mini", cell, ResultPaths(results).cell("mini", CELL), CPU, silent)
    return results


@pytest.fixture
def cell(results: Path, tmp_path: Path) -> Path:
    """A copy of the cell, to be changed."""
    return Path(shutil.copytree(results / "runs/mini" / CELL, tmp_path / "results/runs/quick" / CELL))


def test_nothing_is_changed(results, tmp_path):
    def state() -> dict[Path, tuple[str, int]]:
        files = [file for file in results.rglob("*") if file.is_file()]
        return {file: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in files}

    before = state()
    done = fedflat("verify", results, "--rounds", 2, cwd=tmp_path)
    assert done.returncode == 0, done
    *lines, _ = done.stdout.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        [str(results / "runs/mini" / CELL / name), "verified"] for name in ("seed-0", "seed-1", "metrics.csv")
    ]
    assert state() == before
    assert list(tmp_path.iterdir()) == []


def test_the_metrics_of_a_cell_are_those_of_its_runs(cell):
    assert not verify_cell(cell).differs
    table = pd.read_csv(cell / "metrics.csv").drop(columns="checksum")
    table.loc[6, "test_loss"] += 1e-9
    write_checked_csv(cell / "metrics.csv", table)
    assert "line 8 differs from the metrics and times of the run" in str(verify_cell(cell))
    write_checked_csv(cell / "metrics.csv", table.iloc[:-1])
    assert verify_cell(cell).differs
    shutil.rmtree(cell / "seed-1")
    assert "seed-1' is not a run directory" in str(verify_cell(cell))


def test_the_command_names_what_differs_and_the_command_that_makes_it_anew(cell, tmp_path):
    with_number(cell / "seed-1", 5, "test_accuracy", lambda value: value + 1)
    done = fedflat("verify", cell, cwd=tmp_path)
    assert done.returncode == 2
    first, second, metrics = done.stdout.splitlines()
    assert first.startswith(f"{cell}/seed-0: verified: ")
    assert "metrics.csv': test_accuracy of round 5 is " in second
    assert second.endswith(f"such as: fedflat run quick {CELL}")
    assert "differs from the metrics and times of the run" in metrics
    assert done.stderr == f"fedflat: 2 of 3 differ: {cell}/seed-1, {cell}/metrics.csv\n"


def test_a_folder_without_runs(tmp_path):
    os.mkfifo(tmp_path / "config")
    with pytest.raises(UserError, match="no finished run in"):
        find(tmp_path)


def test_a_run_that_was_killed_before_its_last_files_is_no_cell(cell):
    work = shutil.copytree(cell / "seed-0", cell / "seed-2.partial-01234567")
    for name in ("provenance.json", "config.json"):
        (work / name).unlink()
    assert find(cell) == ([cell / "seed-0", cell / "seed-1"], [cell])
