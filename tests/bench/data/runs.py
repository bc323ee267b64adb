"""The configuration of a small run on a data set."""

from collections.abc import Mapping
from typing import Any

from fedflat.bench.experiments.run_config import RunConfig


def run_on(dataset: Mapping[str, Any]) -> RunConfig:
    """One round of FedAvg with two clients."""
    return RunConfig.parse(
        {
            "dataset": dataset,
            "model": "mlp",
            "partition": {"name": "iid", "clients": 2},
            "participation": {"active": 1},
            "method": {"name": "fedavg", "hyperparameters": {}},
            "training": {"rounds": 1, "local_epochs": 1, "batch_size": 2, "lr": 0.1},
            "seed": 0,
        }
    )
