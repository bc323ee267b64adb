"""Several machines without a scheduler, here as processes: with one folder of results, and with a folder for each."""

import os
import shutil
from pathlib import Path

import pytest

from tests.commands import fedflat, run, start
from tests.end_to_end.pipeline import CELLS, command, edited, run_files, snakemake, with_mini
from tests.places import MINI
from tests.tiers import thorough

METHODS = ("fedavg", "fedsam")


def by_one_process(folder: Path) -> None:
    """A folder with the experiment and its results, computed by one process."""
    own = with_mini(folder)
    edited(own, "experiments.yaml", "rounds: 4", "rounds: 40")
    edited(own, "experiments.yaml", "checkpoint_seconds: 0", "checkpoint_seconds: 0, backend: loop")
    done = fedflat(*training(folder, *METHODS), cwd=folder)
    assert done.returncode == 0, done


@pytest.fixture
def alone(once) -> Path:
    """That folder, which is only read."""
    return once(by_one_process)


def training(alone: Path, *methods: str) -> list[str]:
    return ["run", str(alone / "own" / "experiments.yaml"), *(f"{CELLS}/{method}" for method in methods)]


def machine(folder: Path, name: str, *words: str):
    """A process with its own output; it has its own memory, descriptors and locks, as another machine has."""
    return start(["fedflat", *words], folder, os.environ, [folder / f"{name}.out", folder / f"{name}.err"])


@thorough
def test_two_machines_divide_the_cells_of_a_shared_folder(alone: Path, tmp_path: Path):
    """Each waits for what the other one trains, and takes it; every run is trained once."""
    command = training(alone, *METHODS)
    machines = [machine(tmp_path, name, *command) for name in ("one", "two")]
    for process in machines:
        process.join(120)
        assert process.exitcode == 0
    assert run_files(tmp_path) == run_files(alone)
    logs = [log.read_text(encoding="utf-8") for log in (tmp_path / "results").rglob("run.log")]
    assert [log.count("started: ") for log in logs] == [1] * 4
    assert [log.count("resumed after") for log in logs] == [0] * 4
    assert not list((tmp_path / "results").rglob(".*.lock"))


@thorough
def test_the_results_of_two_machines_are_copied_into_one_folder(alone: Path, tmp_path: Path):
    machines = {method: machine(tmp_path, method, *training(alone, method), "--results", method) for method in METHODS}
    for method, process in machines.items():
        process.join()
        assert process.exitcode == 0
        for part in ("store", "experiments"):
            shutil.copytree(tmp_path / method / part, tmp_path / "results" / part, dirs_exist_ok=True)
    assert run_files(tmp_path) == run_files(alone)
    shutil.copytree(alone / "results", tmp_path / "alone" / "results")
    tables = []
    for folder in (tmp_path / "alone", tmp_path):
        done = fedflat("table", alone / "own" / "experiments.yaml", "accuracy", cwd=folder)
        assert done.returncode == 0, done
        tables.append((folder / "results" / "reports" / "mini" / "tables" / "accuracy.md").read_bytes())
    assert tables[0] == tables[1]


def test_a_run_that_was_finished_meanwhile_is_taken_as_it_is(alone: Path, tmp_path: Path, monkeypatch):
    """Another machine finishes it between the check whether it is missing and its lock."""
    import torch

    from fedflat.bench.experiments.experiment import load_experiment
    from fedflat.bench.training.directories import open_runs
    from fedflat.bench.training.train import train_runs

    [run] = (
        load_experiment(str(alone / "own" / "experiments.yaml"), {"grid.seeds": [0], "training.rounds": 2})
        .cell(f"{CELLS}/fedsam")
        .runs
    )
    lock = open_runs.alone

    def after_another_has_trained(*arguments: object) -> object:
        monkeypatch.undo()
        train_runs([run], [tmp_path / "run"], torch.device("cpu"))
        return lock(*arguments)

    said: list[str] = []
    monkeypatch.setattr(open_runs, "alone", after_another_has_trained)
    [found] = train_runs([run], [tmp_path / "run"], torch.device("cpu"), said.append)
    assert said == [f"seed 0: another process has trained '{tmp_path / 'run'}', and it is taken"]
    assert found.identity == run.identity
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / "run.log").read_text(encoding="utf-8").count("started: ") == 1


@thorough
def test_two_snakemakes_with_common_runs_train_each_run_once(tmp_path: Path):
    """At the same time in one folder. One that is forced, and one that fails, takes nothing from the other."""
    other = tmp_path / "other.yaml"
    other.write_text(
        f"name: other\nextends: {MINI}\nmethods: {{fedavg: {{}}, scaffold: {{}}, fedsam: {{}}}}\n", encoding="utf-8"
    )
    targets = {"mini_runs": f"[{MINI}]", "other_runs": f"[{other}]"}
    both = {
        name: start(command(tmp_path, name, experiments=own, rounds=40), tmp_path, os.environ, [tmp_path / name] * 2)
        for name, own in targets.items()
    }
    for name, process in both.items():
        process.join(300)
        assert process.exitcode == 0, (tmp_path / name).read_text(encoding="utf-8")
    logs = [log.read_text(encoding="utf-8") for log in (tmp_path / "results" / "store").rglob("run.log")]
    assert [log.count("started: ") for log in logs] == [1] * 6, "three methods with two seeds"
    lists = {file: file.read_bytes() for file in (tmp_path / "results" / "experiments" / "mini").rglob("runs.csv")}
    before = run_files(tmp_path)
    snakemake(tmp_path, "other_runs", "--forcerun", "train", experiments=targets["other_runs"], rounds=40)
    (tmp_path / "results" / "logs" / "other").rename(tmp_path / "away")
    (tmp_path / "results" / "logs" / "other").write_text("in the way", encoding="utf-8")
    failed = run(command(tmp_path, "other_runs", "--forcerun", "train", experiments=targets["other_runs"], rounds=40))
    assert failed.returncode != 0
    assert {file: content for file, content in run_files(tmp_path).items() if "/other/" not in file} == {
        file: content for file, content in before.items() if "/other/" not in file
    }
    assert {file: file.read_bytes() for file in lists} == lists
