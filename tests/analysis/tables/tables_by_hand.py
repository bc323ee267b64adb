"""Layouts and answers for tests of tables: five methods in one setting."""

from typing import Any

import pandas as pd

from fedflat.analysis.tables.layout import TableLayout

ACCURACY = {"header": "0.1", "metric": "test_accuracy", "select": {"partition": "dirichlet-0.1"}}


def layout(**changes: Any) -> TableLayout:
    fields = {
        "title": "Accuracy",
        "caption": "Test images.",
        "methods": ["fedavg", "fedsam", "fedlesam_s", "feddyn", "fedgf"],
        "columns": [ACCURACY],
        "blocks": [{"select": {"participation": "4-of-20"}}],
    }
    return TableLayout.model_validate({**fields, **changes})


def reaching(*values: tuple[float, int], metric: str = "rounds_to_target") -> pd.DataFrame:
    """What an analysis says of each seed: spent on 70 %, and whether that was reached; twice that on FedAvg's final."""
    rows = [
        (seed, metric, target, of, 0, factor * value, reached)
        for seed, (value, reached) in enumerate(values)
        for target, of, factor in ((70.0, None, 1), (81.25, "fedavg", 2))
    ]
    return pd.DataFrame(rows, columns=["seed", "metric", "target", "target_of", "smoothed", "value", "reached"])


TARGET = {
    "header": "rounds",
    "metric": "rounds_to_target",
    "target": 70,
    "decimals": 0,
    "select": {"partition": "dirichlet-0.1"},
}
