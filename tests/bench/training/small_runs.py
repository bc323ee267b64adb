"""Small runs of quick_catalog for tests: their configuration, their files, and an interruption."""

from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.training.cell_trainer import CellTrainer
from tests.problems import train

CPU = torch.device("cpu")
SETTING = "digits/dirichlet-0.1/4-of-20"
SMALL = {
    "training.rounds": 6,
    "training.local_epochs": 1,
    "evaluation.snapshot_every": 3,
    "evaluation.every": 2,
    "engine.checkpoint_seconds": 0,
}


def config(method="fedlesam_s", **changes):
    return load_experiment("quick_catalog", {**SMALL, **changes}).cell(f"{SETTING}/{method}").runs[0]


TRAIN_ROUND = CellTrainer.train_round
NOT_EQUAL = ("run.log", "provenance.json", "times.csv")


def contents(run: Path) -> dict[str, bytes]:
    """The files that must be bitwise equal between runs of one configuration: all but log, provenance and times."""
    files = [file for file in run.rglob("*") if file.is_file() and file.name not in NOT_EQUAL]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


class InterruptedRunError(Exception):
    pass


@contextmanager
def interrupted_after_three_rounds(monkeypatch):
    """Every run that is trained here raises `InterruptedRunError` at its fourth round."""

    def play_three(engine, runs):
        if runs[0].state.round == 3:
            raise InterruptedRunError
        return TRAIN_ROUND(engine, runs)

    with monkeypatch.context() as patch:
        patch.setattr("fedflat.bench.training.cell_trainer.CellTrainer.train_round", play_three)
        yield


@contextmanager
def killed_in_round(number: int):
    """Training ends in this round, and nothing is tidied up."""
    train_round = CellTrainer.train_round

    def train_or_end(trainer, runs):
        if runs[0].state.round == number:
            raise KeyboardInterrupt
        return train_round(trainer, runs)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(CellTrainer, "train_round", train_or_end)
        yield


def check_resume(method, device, tmp_path, monkeypatch, **changes):
    """Interrupt a run in its middle, resume it, and compare all bits with those of an undisturbed run."""
    check_resume_of(config(method, **changes), device, tmp_path, monkeypatch)


def check_resume_of(run: RunConfig, device, tmp_path, monkeypatch, error: type[Exception] = InterruptedRunError):
    """The same of any configuration of six rounds; `error` is what its user sees of the interruption."""
    undisturbed = train(run, tmp_path / "undisturbed", device).path
    with interrupted_after_three_rounds(monkeypatch), pytest.raises(error, match=r"^$|InterruptedRunError"):
        train(run, tmp_path / "resumed", device)
    assert not (tmp_path / "resumed").exists(), "an unfinished run is not a run directory"
    resumed = train(run, tmp_path / "resumed", device).path
    assert "resumed after round 3" in (resumed / "run.log").read_text(encoding="utf-8")
    assert contents(resumed) == contents(undisturbed)
