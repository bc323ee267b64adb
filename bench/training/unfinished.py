"""Training of a run up to a round: it stays unfinished, and goes on from there at the next call."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.experiments.run_config import RunConfig
from bench.host.progress import Timer, silent
from bench.training.choices import trainers
from bench.training.directories.open_runs import open_runs


class Trained(NamedTuple):
    """The metrics of each finished round, and the seconds of training and evaluation of all of them."""

    rows: list[dict[str, Any]]
    seconds: float


def train_to(config: RunConfig, folder: Path, last: int, device: torch.device) -> Trained:
    """Train a run up to the round `last`, or until it diverges, and write a checkpoint next to `folder`.

    A run that was killed on the way goes on from its last checkpoint. Errors as those of `train_runs`.
    """
    with open_runs([(config, folder)], device, silent) as [run]:
        if not run.ended and run.state.round < last:
            [trainer] = trainers([run])
            checkpoints = Timer(config.engine.checkpoint_seconds)
            while not run.ended and run.state.round < last:
                run.record(trainer.train_round([run])[0])
                if checkpoints.is_due():
                    run.write_checkpoint()
            run.write_checkpoint()
        return Trained(run.rows, run.seconds)
