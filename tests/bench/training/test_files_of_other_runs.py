"""Files of another method, seed or round in a run's folder are refused by every reader, in one line that names them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import fedflat as fedflat_api
from fedflat.bench.engine.checkpoint import CHECKPOINTS, load_state
from fedflat.bench.experiments.experiment import Cell, load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell, train_runs
from tests.bench.training.small_runs import InterruptedRunError, interrupted_after_three_rounds
from tests.commands import fedflat, refused

CPU = torch.device("cpu")
SETTING = "digits/dirichlet-0.1/4-of-20"
SAVED = {
    "training.rounds": 4,
    "training.local_epochs": 1,
    "grid.seeds": [0, 1],
    "evaluation.every": 1,
    "evaluation.snapshot_every": 2,
    "evaluation.local_models": [2, 4],
    "engine.backend": "loop",
    "engine.checkpoint_seconds": 0,
}
SET = [f"--set={key}={value}" for key, value in SAVED.items()]


def cell(method: str) -> Cell:
    return load_experiment("quick", SAVED).cell(f"{SETTING}/{method}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The results of two methods, each with two seeds."""
    results = tmp_path_factory.mktemp("trained") / "results"
    for method in ("fedavg", "feddyn"):
        train_cell("quick", cell(method), results, CPU, lambda line: None)
    return results


@pytest.fixture
def results(trained, tmp_path) -> Path:
    return shutil.copytree(trained, tmp_path / "results")


def run_of(results: Path, method: str = "feddyn", seed: int = 0) -> Path:
    return ResultPaths(results).run(cell(method).runs[0].with_seed(seed))


READERS: dict[str, Callable[[RunDirectory], object]] = {
    "final.safetensors": lambda run: run.final(CPU),
    "snapshots/round-00002.safetensors": lambda run: run.snapshot(2, CPU),
    "snapshots/round-00004.safetensors": lambda run: run.snapshot(4, CPU),
    "local_models/round-00004.safetensors": lambda run: run.local_models(4, CPU),
    "metrics.csv": lambda run: run.metrics(),
    "times.csv": lambda run: run.times(),
    "partition.csv.gz": lambda run: run.split(),
    "config.json": lambda run: run.config,
}
"""By file of a run, what reads it. `provenance.json` says which run it is."""


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("other", [("fedavg", 0), ("feddyn", 1)], ids=["another method", "another seed"])
def test_a_file_of_another_run_is_refused(name, other, results):
    run = run_of(results)
    read = READERS[name]
    read(RunDirectory(run))
    if name == "partition.csv.gz" and other[1] == 0:
        return  # all methods have the same split
    shutil.copy(run_of(results, *other) / name, run / name)
    with pytest.raises(DamagedFileError, match=rf"^'.*{name}' is damaged \(.*(another run|differs)") as caught:
        read(RunDirectory(run))
    assert len(str(caught.value).splitlines()) == 1


def test_every_file_of_a_run_has_a_reader(results):
    run = run_of(results)
    files = {str(file.relative_to(run)) for file in run.rglob("*") if file.is_file()}
    assert files - {"run.log", "provenance.json", "local_models/round-00002.safetensors"} == set(READERS)


@pytest.mark.parametrize("name", ["snapshots", "local_models"])
def test_a_file_of_another_round_is_refused(name, results):
    run = run_of(results)
    shutil.copy(run / name / "round-00004.safetensors", run / name / "round-00002.safetensors")
    with pytest.raises(DamagedFileError, match="it is of round 4"):
        (RunDirectory(run).snapshot if name == "snapshots" else RunDirectory(run).local_models)(2, CPU)


def test_a_state_refers_to_files_of_its_run_only(results):
    """The vectors of clients that have not changed since are in an earlier file."""
    run, other = run_of(results), run_of(results, seed=1)
    assert load_state(run / "snapshots" / "round-00004.safetensors", CPU)[0].clients
    shutil.copy(other / "snapshots" / "round-00002.safetensors", run / "snapshots" / "round-00002.safetensors")
    with pytest.raises(DamagedFileError, match=r"round-00002.safetensors' is damaged \(it belongs to another run\)"):
        RunDirectory(run).snapshot(4, CPU)


def test_swapped_seeds_are_no_table(results):
    """The list of the cell stays as it is, and analyses do not use the final model of another run."""
    first, second = run_of(results), run_of(results, seed=1)
    table = ResultPaths(results).runs("quick", f"{SETTING}/feddyn")
    before = table.read_bytes()
    for one, other, place in ((first, "first", results), (second, "second", results)):
        shutil.copy(one / "metrics.csv", place / other)
    shutil.copy(results / "second", first / "metrics.csv")
    shutil.copy(results / "first", second / "metrics.csv")
    path = f"{SETTING}/feddyn"
    line = refused("run", "quick", path, *SET, "--results", results, "--list", "--device", "cpu")
    assert f"'{first}/metrics.csv' is damaged (it belongs to another run, or was edited" in line
    assert table.read_bytes() == before
    shutil.copy(run_of(results, "fedavg") / "final.safetensors", second / "final.safetensors")
    done = fedflat("analyse", "sharpness", second, "--device", "cpu")
    assert done.returncode == 2, done
    assert f"'{second}/" in done.stderr
    assert "is damaged" in done.stderr


def test_a_run_that_did_not_record_hashes_is_read(results):
    """As runs of earlier versions."""
    run = run_of(results)
    about = read_checked_json(run / "provenance.json", "")
    del about["tables"]
    write_checked_json(run / "provenance.json", about)
    assert len(RunDirectory(run).metrics()) == len(RunDirectory(run).times()) == 4


def test_a_checkpoint_of_another_run_is_not_resumed(tmp_path, monkeypatch):
    first, second = cell("feddyn").runs
    for config, name in ((first, "seed-0"), (second, "seed-1")):
        with interrupted_after_three_rounds(monkeypatch), pytest.raises(InterruptedRunError):
            train_runs([config], [tmp_path / name], CPU)
    [mine], [other] = (list(tmp_path.glob(f"seed-{seed}.partial-*")) for seed in (0, 1))
    for name in (*CHECKPOINTS, "clients.slots"):
        if (other / name).exists():
            shutil.copy(other / name, mine / name)
    with pytest.raises(UserError, match=r"checkpoint.safetensors' belongs to another run; delete '.*partial-"):
        train_runs([first], [tmp_path / "seed-0"], CPU)


@pytest.mark.parametrize("read", [fedflat_api.runs, fedflat_api.metrics])
def test_the_python_api_refuses_an_edited_configuration(read, results):
    overrides = {**SAVED, "chosen": ["fedavg", "feddyn"]}
    read("quick", results=results, overrides=overrides)
    config = read_checked_json(run_of(results) / "config.json", "")
    edited = {**config, "training": {**config["training"], "lr": 0.2}}
    write_checked_json(run_of(results) / "config.json", edited)
    with pytest.raises(DamagedFileError, match=r"its identity differs from the one in provenance\.json"):
        read("quick", results=results, overrides=overrides)
