"""Runs and trials of a benchmark of flatness for tests: methods with known accuracies, searched with tuning seeds."""

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd

from fedflat.bench.experiments.files import read_yaml
from fedflat.bench.tuning.protocol.reading import protocol_file
from fedflat.bench.tuning.protocol.schema import Protocol
from tests.analysis.comparison.frames import runs as plain_runs

SETTING = ("mnist1d-1000", "dirichlet_by_class-0.6", "5-of-20")
SEEDS = (1000, 1001, 1002, 1003, 1004, 1005)
LEVELS = {"fedavg": 60.0, "fedsam": 66.0, "feddyn": 70.0, "fedspeed": 70.0}


@cache
def protocol() -> Protocol:
    """The protocol of flat1d."""
    return Protocol.parse(read_yaml(protocol_file("flat1d")), "search.yaml")


def runs(
    levels: Mapping[str, float] = LEVELS,
    seeds: Sequence[int] = SEEDS,
    *,
    train: Mapping[str, float] | None = None,
    noise: float = 0.5,
    after: int = 0,
    offset: float = 0.0,
) -> pd.DataFrame:
    """Two runs of each method and tuning seed; `after`: how many seeds later their values are from; `train`: training
    accuracies other than 100; `offset`: added to each run of a second training seed."""
    rng = np.random.default_rng(after)
    rows = []
    for (k, seed), (method, level), which in itertools.product(enumerate(seeds), levels.items(), range(2)):
        tuning = {"protocol": "p", "seed": seeds[(k + after) % len(seeds)], "ranges": {}}
        rows.append(
            {
                **plain_runs([method], seeds=1).iloc[0].to_dict(),
                **dict(zip(("dataset", "partition", "participation"), SETTING, strict=True)),
                "experiment": f"flat1d_t{seed}",
                "seed": 2 * k + which,
                "variant": "tuned",
                "trials": 56,
                "tuning": json.dumps(tuning),
                "identity": f"{method} {after} {2 * k + which}",
                "train_accuracy": (train or {}).get(method, 100.0),
                "test_accuracy": level + noise * rng.normal() + offset * which,
                "validation_accuracy": level,
                "lambda_max": 100 - level,
                "fit_round": 200.0 + 10 * which,
                "fit_mb": 4.0,
            }
        )
    table = pd.DataFrame(rows)
    return table.assign(generalisation_gap=table["train_accuracy"] - table["test_accuracy"])


def trials() -> pd.DataFrame:
    """Trials of two searches: the best ones are at an end of a range."""
    place = {"dataset": "mnist1d-1000", "partition": "dirichlet_by_class-0.6", "participation": "5-of-20"}
    ends = '{"training.lr": [0.03, 2.0]}'
    rows = [
        ("fedsam", 0, '{"training.lr": 0.9, "hyperparameters.rho": 0}', "100.0", "60.0", 1, "taken"),
        ("fedsam", 1, '{"training.lr": 1.9, "hyperparameters.rho": 0.4}', "99.5", "70.0", 1, "trained"),
        ("fedsam", 2, '{"training.lr": 0.2, "hyperparameters.rho": 0.1}', "98.0", "80.0", 0, "trained"),
        ("fedavg", 0, '{"training.lr": 0.9}', "97.0", "60.0", 0, "trained"),
        ("fedavg", 1, '{"training.lr": 0.3}', "96.0", "61.0", 0, "trained"),
    ]
    columns = ["method", "number", "values", "train_accuracy", "validation_accuracy", "fitted", "outcome"]
    table = pd.DataFrame(rows, columns=columns).assign(**place, tuning_seed=1000, ends=ends)
    return table.assign(
        **{"from": None}, stage="base", again=None, fit_mb=None, distance=None, gradients=10.0, cpu_seconds=36.0
    )
