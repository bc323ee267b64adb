"""Accuracy of each client's own model: the final global model, trained further on the client's data."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.clients.clients import STATISTICS, OnTestImagesOfClients, of_clients_and_all
from fedflat.bench.engine.batches import LocalSteps
from fedflat.bench.input.bounds import Count, Images
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.quantity import Quantity


class Personalised(OnTestImagesOfClients):
    """The accuracy of the model that each client gets by fine-tuning the final global model (Yu, Bagdasaryan and
    Shmatikov, 2020: Salvaging Federated Learning by Local Adaptation)."""

    name: ClassVar[str] = "personalised"
    columns: ClassVar[tuple[str, ...]] = ("metric", "client", "value")
    quantities: ClassVar[Mapping[str, Quantity]] = {
        **{
            f"personalised_accuracy_{name}": Quantity(f"{title} personalised test accuracy over clients", better, "%")
            for name, (title, better) in STATISTICS.items()
        },
        "personalisation_gain": Quantity("gain of test accuracy by personalisation", "higher", "points"),
    }

    epochs: Count = Field(default=1, description="passes over the client's training images")
    steps: Count | None = Field(
        default=None, examples=[10], description="mini-batches of a client instead of epochs; null: epochs"
    )
    batch_size: Images | None = Field(default=None, examples=[50], description="mini-batch size; null: that of the run")
    lr: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, examples=[0.01],
        description="learning rate; null: the run's local rate in its last round",
    )  # fmt: skip

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per client, rows with the statistics over clients, and one with the mean gain over the global model.

        Fine-tuning takes plain steps of gradient descent, with weight decay, clipping and momentum of the run, on
        images without augmentation; statistics of BatchNorm stay those of the global model.
        """
        accuracies_of, clients, images = self.test_accuracies(run)
        if clients != len(run.setup.split):
            raise UserError(
                f"{self.name}: test divides the test images among {clients} clients, but the run has "
                f"{len(run.setup.split)} (allowed: as many)"
            )
        settings, rate = run.config.training, self.lr or float(run.directory.metrics()["lr"].iloc[-1])
        size = self.batch_size or settings.batch_size
        local = LocalSteps(self.steps, None if self.steps else self.epochs, size)
        batches = local.sampler(run.setup.split, run.config.seed)
        before = accuracies_of(_correct(run, run.w), range(clients))
        after = np.full(clients, np.nan)
        for client in run.progress(range(clients), "client"):
            if len(run.setup.split[client]):
                w = _fine_tuned(run, batches(client, settings.rounds), rate)
                after[client] = accuracies_of(_correct(run, w), [client])[0]
        amount = f"{self.steps} mini-batches" if self.steps else f"{self.epochs} epochs in mini-batches"
        most = "all" if size >= len(run.setup.train) else size
        what = f"the global model after {amount} of {most} of the client's training images, rate {rate:g}, on {images}"
        gain = float(np.nanmean(100 * (after - before))) if not np.isnan(after - before).all() else float("nan")
        table = of_clients_and_all({"personalised_accuracy": (100 * after, f"accuracy in percent of {what}")})
        words = f"mean over clients of the accuracy in percent of {what}, minus that of the global model"
        row = pd.DataFrame(
            {"metric": ["personalisation_gain"], "client": [pd.NA], "value": [gain], "definition": [words]}
        )
        return pd.concat([table, row.astype({"client": "Int64"})], ignore_index=True)


def _correct(run: AnalysedRun, w: Tensor) -> np.ndarray:
    """Whether the model w `[P]` classifies each test image correctly `[n]`."""
    scores = ((run.setup.objective.logits(w, x, batch_size=len(x)), y) for x, y in run.sample("test").data)
    return torch.cat([one.argmax(1) == y for one, y in scores]).cpu().numpy()


def _fine_tuned(run: AnalysedRun, batches: list[Tensor], rate: float) -> Tensor:
    """The final global model `[P]` after a step on each of these batches of training images."""
    settings, w, b = run.config.training, run.w, None
    for index in batches:
        g, _ = run.setup.objective.gradient(w, *run.setup.train.batch(index.to(run.device)))
        if settings.local_momentum is None:
            w = settings.step(w, g, rate)
        else:
            w, b = settings.momentum_step(w, g, b, rate)
    return w
