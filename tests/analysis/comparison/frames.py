"""Tables of runs for tests: methods with known gaps in four settings."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.compare import Comparison, paired
from fedflat.analysis.comparison.run_table import CURVE_IDS
from fedflat.analysis.layouts.run_columns import CURVE

SETTINGS = [("dirichlet-0.6", "4-of-20"), ("dirichlet-0.6", "10-of-20"), ("iid", "4-of-20"), ("iid", "10-of-20")]


def runs(methods: Sequence[str] | Mapping[str, float], seeds: int = 10, noise: float = 1.0) -> pd.DataFrame:
    """One run of each method in each setting with each seed; values of a mapping are true accuracies."""
    levels = methods if isinstance(methods, Mapping) else dict.fromkeys(methods, 80.0)
    rng = np.random.default_rng(3)
    rows = []
    for (partition, participation), seed in itertools.product(SETTINGS, range(seeds)):
        shared = rng.normal()
        for method, level in levels.items():
            rows.append(
                {
                    "dataset": "digits", "partition": partition, "participation": participation,
                    "experiment": "own", "method": method, "title": method.upper(), "seed": seed,
                    "variant": "untuned", "trials": 0, "tuning": "", "outcome": "finished", "last_round": 30,
                    "test_accuracy": level + shared + noise * rng.normal(),
                    "hyperparameters": "{}", "training": "{}", "report": "last",
                    "configuration": '{"method": {"name": "fedavg"}}',
                    "identity": f"{method} {partition} {participation} {seed}",
                    "code": "0.1.0+c", "versions": '{"torch": "2.9"}', "device": "cpu",
                    "protocol": "p", "partition_hash": "h", "data_hash": "d",
                    "model": "m", "rounds": 30, "local_epochs": 1, "local_steps": None, "batch_size": 16,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def complete_runs(methods: Sequence[str] | Mapping[str, float], seeds: int = 10) -> pd.DataFrame:
    """The same with a mean over rounds as reported value, costs, rounds to targets, and two flatness measures."""
    rows = runs(methods, seeds)
    number = rows["method"].map({method: k for k, method in enumerate(methods)})
    rng = np.random.default_rng(4)
    return rows.assign(
        report="mean_last_5, evaluated every 10 rounds",
        communicated_mb=10.0 * (1 + number % 2),
        gradients=1e5 * (1 + number % 3),
        seconds=3.0,
        rounds_to_70=np.ceil(rng.uniform(2, 30, len(rows))),
        rounds_to_99=np.nan,
        lambda_max=np.exp(rng.normal(size=len(rows))),
        lpf=rng.uniform(size=len(rows)),
    )


def compared(rows: pd.DataFrame, method: str = "mine") -> Comparison:
    """The comparison of one method with all others."""
    is_own = rows["method"] == method
    chosen, notes = paired(rows[is_own], rows[~is_own], "grid")
    curves = chosen[CURVE_IDS].assign(round=1, **dict.fromkeys(CURVE, 1.0))
    return Comparison(method, "own", "grid", "untuned", "test_accuracy", chosen, curves, notes)
