"""Run directories: complete or absent, bitwise reproducible, and resumed after kill -9."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedflat.bench.data.partitions.base import partition_hash
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from fedflat.bench.training.train import train_runs
from fedflat.bench.training.training_run import _logger
from tests.bench.training.small_runs import (
    CPU,
    SETTING,
    SMALL,
    InterruptedRunError,
    check_resume,
    config,
    contents,
    interrupted_after_three_rounds,
)
from tests.commands import fedflat, start
from tests.problems import train
from tests.tiers import METHODS
from tests.waiting import wait_for


def test_a_run_leaves_the_stated_files(tmp_path):
    run = train(config(), tmp_path / "seed-0", CPU)
    assert sorted(p.name for p in run.path.iterdir()) == [
        "config.json", "final.safetensors", "metrics.csv", "partition.csv.gz",
        "provenance.json", "run.log", "snapshots", "times.csv",
    ]  # fmt: skip
    assert sorted(p.name for p in (run.path / "snapshots").iterdir()) == [
        "round-00003.safetensors", "round-00006.safetensors",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == [run.path], "nothing else is left next to it"
    assert run.config == config()
    metrics = run.metrics()
    assert metrics["round"].tolist() == [1, 2, 3, 4, 5, 6]
    assert metrics["test_accuracy"].notna().tolist() == [False, True] * 3
    last = run.snapshot(6, CPU)
    assert set(last.server) == {"c"}
    assert all(set(vectors) == {"w_old", "c_i"} for vectors in last.clients.values())
    assert 4 <= len(last.clients) < 20, "only clients that took part have a state"
    assert torch.equal(last.w, run.final(CPU).w)
    about = run.provenance
    assert about["outcome"] == "finished"
    assert {"code", "libraries", "device", "threads", "seed", "data_hash", "partition_hash", "seconds"} <= set(about)


def test_the_control_variate_is_the_mean_over_all_clients(tmp_path):
    """SCAFFOLD's invariant under partial participation, in a real run's state."""
    state = train(config("scaffold"), tmp_path / "run", CPU).snapshot(6, CPU)
    total = torch.stack([vectors["c_i"] for vectors in state.clients.values()]).sum(0)
    assert torch.allclose(state.server["c"], total / 20, atol=1e-5)
    assert float(state.server["c"].norm()) > 0.01


def test_the_mean_dual_is_the_mean_over_all_clients(tmp_path):
    """FedDyn's invariant."""
    state = train(config("feddyn"), tmp_path / "run", CPU).snapshot(6, CPU)
    total = torch.stack([vectors["H"] for vectors in state.clients.values()]).sum(0)
    assert torch.allclose(state.server["H_bar"], total / 20, atol=1e-5)


def test_same_config_same_bits(tmp_path):
    first, second = (train(config(), tmp_path / name, CPU).path for name in ("a", "b"))
    assert contents(first) == contents(second)


def test_methods_share_partition_initial_model_and_schedule(tmp_path):
    """Common random numbers: with ρ = 0 FedSAM's run is FedAvg's, from the same start on the same clients."""
    sam = train(config("fedsam", **{"methods.fedsam.hyperparameters.rho": 0}), tmp_path / "a", CPU).metrics()
    avg = train(config("fedavg"), tmp_path / "b", CPU).metrics()
    assert (sam.pop("gradients") == 2).all()
    assert (avg.pop("gradients") == 1).all()
    pd.testing.assert_frame_equal(sam, avg)


def test_checkpoints_are_written_when_their_time_has_come(tmp_path, monkeypatch):
    with interrupted_after_three_rounds(monkeypatch), pytest.raises(InterruptedRunError):
        train(config(**{"engine.checkpoint_seconds": 600}), tmp_path / "run", CPU)
    assert list(tmp_path.iterdir()) == [], "a failed run without a checkpoint leaves nothing"
    with interrupted_after_three_rounds(monkeypatch), pytest.raises(InterruptedRunError):
        train(config(), tmp_path / "run", CPU)
    assert list(tmp_path.glob("run.partial-*/checkpoint.safetensors"))


@pytest.mark.parametrize("method", METHODS)
def test_resume_is_bitwise_for_every_method(method, tmp_path, monkeypatch):
    check_resume(method, CPU, tmp_path, monkeypatch)


@pytest.mark.parametrize("augmentation", [["standard", "mixup"], {"name": "cutout", "size": 4}, "fl_simulator"])
def test_resume_is_bitwise_with_swa_momentum_and_augmentation(augmentation, tmp_path, monkeypatch):
    """Interrupted when one model has been collected."""
    changes = {
        "methods.fedasam.hyperparameters.swa": {"start": 0, "cycle": 2, "lr_end": 0.01},
        "training.augmentation": augmentation,
        "training.local_momentum": 0.9,
    }
    check_resume("fedasam", CPU, tmp_path, monkeypatch, **changes)
    run = RunDirectory(tmp_path / "undisturbed")
    last = run.snapshot(6, CPU)
    assert float(last.server["n_swa"]) == 3
    assert torch.equal(run.final(CPU).w, last.server["w_swa"])
    assert not torch.equal(run.final(CPU).w, last.w)


@pytest.mark.parametrize("seeds", ["auto", "together"])
def test_seeds_that_stopped_at_different_rounds_go_on_together(seeds, tmp_path, monkeypatch):
    changes = {**SMALL, "grid.seeds": [0, 1, 2], "engine.backend": "cohort", "engine.seeds": seeds}
    configs = load_experiment("quick", changes).cell(f"{SETTING}/fedlesam_s").runs
    undisturbed = train_runs(configs, [tmp_path / "undisturbed" / f"seed-{s}" for s in range(3)], CPU)
    places = [tmp_path / "resumed" / f"seed-{s}" for s in range(3)]
    with interrupted_after_three_rounds(monkeypatch), pytest.raises(InterruptedRunError):
        train(configs[1], places[1], CPU)
    resumed = train_runs(configs, places, CPU)
    assert ["resumed after round 3" in (place / "run.log").read_text(encoding="utf-8") for place in places] == [
        False,
        True,
        False,
    ]
    for one, other in zip(resumed, undisturbed, strict=True):
        assert contents(one.path) == contents(other.path)


def test_centralized_training_is_one_client_with_everything(tmp_path):
    """SGD, SAM and ASAM on one machine are FedAvg, FedSAM and FedASAM with one client."""
    changes = {"grid.partition": [{"name": "centralized"}], "grid.participation": [{"active": 1}], **SMALL}
    experiment = load_experiment("quick_all", changes)
    runs = {}
    for method in ("fedavg", "fedsam", "fedasam"):
        runs[method] = train(experiment.cell(f"digits/centralized/1-of-1/{method}").runs[0], tmp_path / method, CPU)
        metrics = runs[method].metrics()
        assert (metrics["active"] == 1).all()
        assert metrics["test_accuracy"].iloc[-1] > 60
    partition = pd.read_csv(runs["fedavg"].path / "partition.csv.gz")
    assert partition["index"].tolist() == list(range(901))


def test_a_runs_own_partition_is_a_partition_file(tmp_path):
    first = train(config(), tmp_path / "first", CPU)
    again = train(config(**{"training.rounds": 1}), tmp_path / "again", CPU)
    file, other = (run.path / "partition.csv.gz" for run in (first, again))
    assert file.read_bytes() == other.read_bytes(), "equal splits, equal bytes"
    assert pd.read_csv(file).columns.tolist() == ["client", "index", "label"]
    changes = {**SMALL, "grid.partition": [{"name": "from_file", "file": str(file)}], "training.rounds": 1}
    cell = load_experiment("quick_all", changes).cell("digits/file-partition/4-of-20/fedavg")
    same = train(cell.runs[0], tmp_path / "same", CPU)
    assert same.provenance["partition_hash"] == first.provenance["partition_hash"]
    file.unlink()
    assert RunDirectory(same.path).config == cell.runs[0]


def test_a_run_whose_images_repeat_leaves_a_partition_file_too(tmp_path):
    released = {"name": "dirichlet", "alpha": 0.1, "clients": 20, "variant": "released"}
    changes = {**SMALL, "training.rounds": 1}
    first = load_experiment("quick_all", {**changes, "grid.partition": [released]})
    first = train(first.cell("digits/dirichlet-0.1-released/4-of-20/fedavg").runs[0], tmp_path / "first", CPU)
    file = {"name": "from_file", "file": str(first.path / "partition.csv.gz"), "repeats": True}
    again = load_experiment("quick_all", {**changes, "grid.partition": [file]})
    again = train(again.cell("digits/file-partition/4-of-20/fedavg").runs[0], tmp_path / "again", CPU)
    assert again.provenance["partition_hash"] == first.provenance["partition_hash"]
    pd.testing.assert_frame_equal(again.metrics(), first.metrics())
    for run in (first, again):
        assert partition_hash(run.split()) == first.provenance["partition_hash"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda table: table.drop(columns="client"), r"is damaged \(the table lacks the column client"),
        (lambda table: table.iloc[:-1], r"is damaged \(its hash differs from partition_hash"),
        (lambda table: table.assign(index=table["index"][::-1].to_numpy()), r"is damaged \(its hash differs"),
        (None, r"is damaged \(it does not exist"),
    ],
)
def test_a_damaged_split_is_one_line(damage, message, tmp_path):
    run = train(config("fedavg", **{"training.rounds": 1}), tmp_path / "run", CPU)
    file = run.path / "partition.csv.gz"
    table = pd.read_csv(file)
    file.unlink()
    if damage is not None:
        damage(table).to_csv(file, index=False)
    with pytest.raises(UserError, match=rf"partition\.csv\.gz' {message}") as error:
        run.split()
    assert "\n" not in str(error.value)


def test_a_run_follows_its_schedule(tmp_path):
    schedule = tmp_path / "mine.csv"
    schedule.write_text("round,client\n0,1\n0,2\n1,5\n", encoding="utf-8")
    changes = {
        "grid.participation": [{"sampling": "schedule", "file": str(schedule)}, {"sampling": "full"}],
        "training.rounds": 2,
    }
    experiment = load_experiment("quick_all", changes)
    active = {}
    for label in ("schedule-mine-of-20", "all-of-20"):
        run = train(experiment.cell(f"digits/dirichlet-0.1/{label}/fedavg").runs[0], tmp_path / label, CPU)
        active[label] = run.metrics()["active"].tolist()
    assert active == {"schedule-mine-of-20": [2, 1], "all-of-20": [20, 20]}


@pytest.mark.long
def test_kill_9_and_the_same_command_again(tmp_path):
    """A process is killed as soon as it has a checkpoint; the same command then finishes the run, bit by bit."""
    cell = f"{SETTING}/fedgf"
    command = ["run", "quick", cell, "--seed", "0", "--device", "cpu"]
    command += ["--set", "training.rounds=12", "--set", "evaluation.local_models=[1,6,12]"]
    command += ["--set", "engine.checkpoint_seconds=0", "--results"]
    assert fedflat(*command, tmp_path / "undisturbed").returncode == 0
    words = ["fedflat", *command, str(tmp_path / "killed")]
    killed = start(words, tmp_path, os.environ, [tmp_path / "printed"] * 2)
    wait_for(lambda: list(tmp_path.glob("killed/store/**/checkpoint.safetensors")), alive=killed.is_alive)
    killed.kill()
    killed.join()
    assert not list((tmp_path / "killed").rglob("seed-0"))
    assert fedflat(*command, tmp_path / "killed").returncode == 0
    killed_run, undisturbed = (next((tmp_path / name).rglob("seed-0")) for name in ("killed", "undisturbed"))
    assert "resumed after round" in (killed_run / "run.log").read_text(encoding="utf-8")
    assert contents(killed_run) == contents(undisturbed)


def test_a_checkpoint_of_other_data_is_refused(tmp_path, monkeypatch):
    with interrupted_after_three_rounds(monkeypatch), pytest.raises(InterruptedRunError):
        train(config(), tmp_path / "run", CPU)
    monkeypatch.setattr("fedflat.bench.data.dataset.Dataset.content_hash", lambda data: "other")
    with pytest.raises(UserError, match=r"the training data have changed since .* was written"):
        train(config(), tmp_path / "run", CPU)


def test_divergence_is_an_outcome(tmp_path):
    run = train(config("fedavg", **{"training.lr": 1e20, "training.clip": None}), tmp_path / "run", CPU)
    assert run.diverged
    metrics = run.metrics()
    assert metrics["diverged"].tolist() == [0] * (len(metrics) - 1) + [1]
    assert len(metrics) < 6
    assert "diverged after round" in (run.path / "run.log").read_text(encoding="utf-8")
    assert len(metrics) == 1 and metrics[["test_loss", "test_accuracy"]].isna().all(axis=None)


def test_a_loss_that_is_finite_but_useless_is_divergence(tmp_path):
    """After the server's step, so that only the evaluation sees it."""
    run = train(config("fedavg", **{"training.server_lr": 1e9, "evaluation.every": 1}), tmp_path / "run", CPU)
    metrics = run.metrics()
    assert run.diverged and metrics["diverged"].tolist() == [1]
    assert np.isfinite(metrics).all(axis=None) and metrics["test_loss"].iloc[-1] > 1e10


def test_the_log_takes_any_characters(tmp_path, capfd):
    """Paths are bytes; they need not be text in any encoding."""
    folder = tmp_path / "caf\udce9"
    left = folder / "run.partial-01234567"
    left.mkdir(parents=True)
    log = train(config(), folder / "run", CPU).path / "run.log"
    assert rf"removed '{tmp_path}/caf\udce9/run.partial-01234567'" in log.read_text(encoding="utf-8")
    assert "Logging error" not in capfd.readouterr().err


def test_a_share_of_the_training_images_can_be_evaluated():
    """Evenly spaced ones; an unset share leaves the run's identity alone."""
    cell = load_experiment("quick", {"evaluation.training_images": 300}).cell("digits/dirichlet-0.1/4-of-20/fedavg")
    whole = load_experiment("quick").cell("digits/dirichlet-0.1/4-of-20/fedavg")
    some, all_ = (RunSetup.build(c.runs[0], torch.device("cpu")) for c in (cell, whole))
    state = some.federation.start(some.objective.initial())
    a, b = some.evaluate(state), all_.evaluate(state)
    assert a["test_loss"] == b["test_loss"]
    index = torch.tensor([k * 901 // 300 for k in range(300)])
    x, y = some.train.batch(index)
    assert a["train_loss"] == pytest.approx(
        float(torch.nn.functional.cross_entropy(some.objective.logits(state.w, x), y))
    )
    assert a["train_loss"] != b["train_loss"]
    assert "training_images" not in whole.runs[0].canonical_json()


@pytest.mark.parametrize(("given", "images", "evaluated"), [(None, 50_000, 10_000), (None, 901, 901), (300, 901, 300)])
def test_the_number_of_training_images_that_are_evaluated(given, images, evaluated):
    assert Evaluation(training_images=given).count(images) == evaluated


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_log_on_a_full_disk_prints_nothing(capsys):
    log = _logger(Path("/dev/full"))
    log.info("a line that is lost")
    for handler in log.handlers:
        handler.close()
    assert capsys.readouterr().err == ""
