"""Accuracy of the final global model for each client, on its training images and on test images of its classes."""

from typing import ClassVar

import pandas as pd

from analysis.analyses.analysed_run import AnalysedRun
from analysis.analyses.base import Analysis
from analysis.measures.clients import (
    expected_of_clients,
    label_shares,
    mean_of_classes,
    mean_of_clients,
    responses,
    summary,
)
from bench.data.sources.base import Subset

_DATA: dict[Subset, str] = {
    "train": "the client's own training images",
    "test": "test images, the classes weighted by their shares of the client's training images",
}


class Clients(Analysis):
    """The accuracy of each client; mean, deviation, lowest and highest over clients (Qu et al., 2022: train and
    validation columns)."""

    name: ClassVar[str] = "clients"
    columns: ClassVar[tuple[str, ...]] = ("metric", "client", "value")

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per client, and rows without a client with the statistics over clients."""
        setup = run.setup
        answers = {
            part: responses(setup.objective, run.w, run.progress(run.sample(part).data, f"{part} batch"))
            for part in _DATA
        }
        classes, train_labels = setup.dataset.classes, setup.dataset.train.labels
        test = mean_of_classes(answers["test"].correct, setup.dataset.test.labels, classes)
        of_clients = {
            "train": 100 * mean_of_clients(answers["train"].correct, setup.split),
            "test": 100 * expected_of_clients(test, label_shares(train_labels, setup.split, classes)),
        }
        rows: list[tuple[str, int | None, float, str]] = []
        for part, data in _DATA.items():
            accuracies = of_clients[part]
            what = f"accuracy in percent of the global model on {data}"
            rows += [(f"client_{part}_accuracy", i, value, what) for i, value in enumerate(accuracies)]
            rows += [
                (f"client_{part}_accuracy_{name}", None, value, f"{name} over {len(accuracies)} clients of {what}")
                for name, value in summary(accuracies).items()
            ]
        table = pd.DataFrame(rows, columns=["metric", "client", "value", "definition"])
        return table.astype({"client": "Int64"})
