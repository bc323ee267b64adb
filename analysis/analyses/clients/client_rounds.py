"""Accuracy and feature norms of the global model on each class and for each client, after each stored round."""

from typing import ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis, needs_stored_states
from fedflat.analysis.measures.clients import Features, mean_of_classes, responses
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.metrics.of_clients import mean_of_clients


class ClientRounds(Analysis):
    """Accuracy of the global model by class and client over the rounds, which shows what it forgets (Caldarola et al.,
    2022: Figures 3 and 7)."""

    name: ClassVar[str] = "client_rounds"
    columns: ClassVar[tuple[str, ...]] = ("round", "group", "number", "accuracy", "feature_norm")
    of_label_maps: ClassVar[bool | None] = False
    of_final_model: ClassVar[bool] = False

    features: Features = Field(
        default="penultimate", description="penultimate: the input of the last linear layer; output: the class scores"
    )

    def check(self, evaluation: Evaluation) -> None:
        """Stored states are needed: they contain the global models."""
        needs_stored_states(self.name, evaluation)

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per stored round and class (on its test images) or client (on its own training images)."""
        setup = run.setup
        train, test = run.sample("train").data, run.sample("test").data
        tables = []
        for finished in run.progress(run.config.snapshots, "state"):
            w = setup.federation.evaluated(run.state(finished))
            of_test = responses(setup.objective, w, test, self.features)
            of_train = responses(setup.objective, w, train, self.features)
            labels, classes = setup.dataset.test.labels, setup.dataset.classes
            groups = {
                "class": [mean_of_classes(v, labels, classes) for v in (of_test.correct, of_test.norms)],
                "client": [mean_of_clients(v, setup.split) for v in (of_train.correct, of_train.norms)],
            }
            for group, (accuracy, norm) in groups.items():
                numbers = range(len(accuracy))
                columns = {"number": numbers, "accuracy": 100 * accuracy, "feature_norm": norm}
                tables.append(pd.DataFrame({"round": finished, "group": group, **columns}))
        absent = np.setdiff1d(np.arange(setup.dataset.classes), setup.dataset.test.labels)
        without = f" (no test image has class {', '.join(map(str, absent))})" if len(absent) else ""
        return pd.concat(tables, ignore_index=True).assign(
            definition=f"global model; classes: test images{without}, clients: their own training images; accuracy in "
            f"percent; mean L2 norm of the {self.features} features"
        )
