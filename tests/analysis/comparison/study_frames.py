"""Tables of runs for tests of studies: a measure that orders methods, and not the seeds of a method."""

import itertools
import json
from collections.abc import Mapping

import numpy as np
import pandas as pd

from tests.analysis.comparison.frames import SETTINGS

CHOICES: Mapping[str, Mapping[str, str]] = {
    "fedavg": {"name": "fedavg"},
    "fedsam": {"name": "fedsam"},
    "scaffold": {"name": "scaffold"},
    "fedgamma": {"name": "fedgamma"},
    "fedlesam": {"name": "fedlesam"},
    "fedlesam_s": {"name": "fedlesam_s"},
    "prox_sam": {"perturbation": "sam", "correction": "prox"},
    "mine": {"code": "60397c3d5fe27287"},
}
"""How the configuration of each method chooses it."""


def study_runs(seeds: int = 8, noise: float = 1.0) -> pd.DataFrame:
    """Runs of eight methods in four settings. Sharper methods, by `lambda_max`, are less accurate; `trace` is random.

    The first setting is 5 points harder for all methods.
    """
    rng = np.random.default_rng(2)
    rows = []
    for (place, (partition, participation)), seed in itertools.product(enumerate(SETTINGS), range(seeds)):
        for number, (method, choice) in enumerate(CHOICES.items()):
            accuracy = 90.0 - 2 * number - 5 * (place == 0) + noise * rng.normal()
            rows.append(
                {
                    "dataset": "digits", "partition": partition, "participation": participation,
                    "method": method, "variant": "untuned", "seed": seed, "outcome": "finished",
                    "test_accuracy": accuracy, "train_accuracy": accuracy + rng.uniform(1, 3),
                    "generalisation_gap": 0.0, "train_loss": rng.uniform(), "gradients": 1e5 * (1 + number % 2),
                    "lambda_max": np.exp(number + 0.1 * rng.normal()), "trace": rng.normal(),
                    "configuration": json.dumps({"method": dict(choice)}),
                }
            )  # fmt: skip
    table = pd.DataFrame(rows)
    return table.assign(generalisation_gap=table["train_accuracy"] - table["test_accuracy"])
