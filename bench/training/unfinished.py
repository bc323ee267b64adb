"""Training of runs up to a round: they stay unfinished, and go on from there at the next call."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.progress import Timer, silent
from fedflat.bench.training.cell_trainer import due_runs
from fedflat.bench.training.choices import trainers
from fedflat.bench.training.directories.open_runs import open_runs


class Trained(NamedTuple):
    """The metrics of each finished round, and the seconds of training and evaluation of all of them.

    `cpu_seconds`: the processor time of this call for the run, an equal part of that of each round of its company.
    """

    rows: list[dict[str, Any]]
    seconds: float
    cpu_seconds: float


def train_to(configs: Sequence[RunConfig], folders: Sequence[Path], last: int, device: torch.device) -> list[Trained]:
    """Train runs up to the round `last`, or until they diverge, and write a checkpoint next to each folder.

    Runs for which `same_cohort` holds are trained in one cohort if the engine has their values by row, else one by one.
    Runs that were killed on the way go on from their last checkpoints; those that are behind catch up first. Errors as
    those of `train_runs`.
    """
    with open_runs(list(zip(configs, folders, strict=True)), device, silent) as runs:
        spent = dict.fromkeys(runs, 0.0)
        unfinished = [run for run in runs if not run.ended and run.state.round < last]
        checkpoints = Timer(configs[0].engine.checkpoint_seconds)
        for trainer in trainers(unfinished) if unfinished else ():
            for due in due_runs(trainer.runs, last):
                began = time.process_time()
                for run, result in zip(due, trainer.train_round(due), strict=True):
                    run.record(result)
                if checkpoints.is_due():
                    for run in trainer.runs:
                        run.write_checkpoint()
                for run in due:
                    spent[run] += (time.process_time() - began) / len(due)
            for run in trainer.runs:
                run.write_checkpoint()
        return [Trained(run.rows, run.seconds, spent[run]) for run in runs]
