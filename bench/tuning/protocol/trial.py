"""A trial by a protocol: its run, and what is measured of it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedflat.bench.data.root import data_root
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.evaluation import OWN
from fedflat.bench.experiments.sections.stop import ROUNDING
from fedflat.bench.models import build_model
from fedflat.bench.training.run_setup import load_dataset
from fedflat.bench.tuning.score import evaluated_rounds

BYTES = 4
"""Bytes of a parameter that is sent."""

DISTANCE_ROUNDS = 20
"""The rounds over whose clients' distances the median is taken, from the first on."""


def as_trial(run: RunConfig, seed: int) -> RunConfig:
    """The run with a tuning seed, judged on the data set's images for validation; it stores no states or clients."""
    none_stored = {"snapshot_every": None, "local_models": None, "by_client": None}
    evaluation = {"validation": OWN, "training_images": None, **none_stored}
    data = run.model_dump()
    return RunConfig.parse({**data, "seed": seed, "evaluation": {**data["evaluation"], **evaluation}})


def with_rounds(run: RunConfig, rounds: int) -> RunConfig:
    """The run with other rounds, over which the local rate falls as far."""
    training = run.training
    decay = round(training.lr_decay ** (training.rounds / rounds), 7)
    data = run.model_dump()
    data["training"] |= {"rounds": rounds, "lr_decay": decay}
    if swa := data["method"]["hyperparameters"].get("swa"):
        del swa["start"]  # three quarters of the rounds
    return RunConfig.parse(data)


@dataclass(frozen=True)
class Measured:
    """What a finished trial gave. Accuracies in percent are those that the experiment reports.

    `fit_round`: the first evaluated round with which the training data are fitted, and `fit_mb` the 10⁶ bytes that all
    clients received and sent until then; None if there is none. `distance`: the median of the clients' mean distance
    from the global model over the first rounds. `gradients`: mini-batch gradients of all clients.
    """

    train_accuracy: float
    validation_accuracy: float
    fitted: bool
    fit_round: int | None
    fit_mb: float | None
    distance: float
    gradients: float


def measured(run: RunConfig, report: str, least: float, rows: Sequence[Mapping[str, Any]]) -> Measured:
    """The measurements of a trial, of the rows of its metrics."""
    last = evaluated_rounds(report, run.evaluation, run.training.rounds, run.training.rounds)
    train, validation = (_mean([rows[number - 1][f"{kind}_accuracy"] for number in last]) for kind in ("train", OF_OWN))
    fit_round = next((row["round"] for row in rows if row.get("train_accuracy", -1.0) >= least - ROUNDING), None)
    sent = [row["active"] * (row["download"] + row["upload"]) for row in rows[: fit_round or 0]]
    steps = run.training.local_steps or 1
    return Measured(
        train,
        validation,
        train >= least - ROUNDING,
        fit_round,
        None if fit_round is None else math.fsum(sent) * BYTES * parameters(run) / 1e6,
        float(statistics.median(row["client_drift"] for row in rows[:DISTANCE_ROUNDS])),
        math.fsum(row["active"] * row["gradients"] * steps for row in rows),
    )


OF_OWN = "validation"
"""The beginning of the names of scores on images for validation."""


def parameters(run: RunConfig) -> int:
    """The number of a model's parameters."""
    data = load_dataset(run.dataset, data_root())
    return sum(part.numel() for part in build_model(run.model, data.image_shape, data.classes, run.seed).parameters())


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
