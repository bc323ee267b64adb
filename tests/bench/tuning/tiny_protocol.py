"""A tiny grid for searches that really train: four rounds on 60 signals, one base and two methods."""

from pathlib import Path
from typing import Any

import yaml

EXPERIMENT: dict[str, Any] = {
    "name": "tiny",
    "dataset": {"name": "mnist1d", "signals": 60},
    "model": {"name": "mlp", "hidden": []},
    "training": {"rounds": 4, "local_steps": 2, "batch_size": 8, "lr": 0.1, "lr_decay": 0.9, "aggregation": "uniform"},
    "evaluation": {"every": 2},
    "engine": {"backend": "cohort", "seeds": "together", "values": "by_row"},
    "report": "last",
    "grid": {
        "partition": [{"name": "iid", "clients": 4}],
        "participation": [{"active": 2}],
        "seeds": [0, 1],
    },
    "methods": {
        "fedavg": {},
        "fedsam": {"hyperparameters": {"rho": 0.1}},
        "fedgf": {"hyperparameters": {"rho": 0.1, "rho_g": 0.1, "T_D": "inf", "W": 30}},
    },
}

PROTOCOL: dict[str, Any] = {
    "name": "tiny",
    "committed": "2026-11-29",
    "settings": {"main": "experiments.yaml"},
    "tuning_seeds": [1000, 1001],
    "training_seeds_each": 2,
    "fitted": {"least": 10.0, "of": "train_accuracy"},
    "judged": "validation_accuracy",
    "rounds": {
        "candidates": [2, 4],
        "tried": {"methods": ["fedavg", "fedsam"], "seed": 999, "values": {"rho": 0.1}, "trials": 2},
        "otherwise": {"within_points": 1.0},
        "chosen": {"main": 4},
    },
    "trials": {"base": 3, "widen": 2, "refine": 1, "confirm": 2, "own": 4, "further": 2},
    "refine": {"share": 0.1, "around": 2},
    "confirm": {"seed_plus": 1000},
    "widen": {"near": 0.05, "factor": 2, "times": 1, "trials": 2},
    "early_stopping": "none",
    "ranges": {"lr": {"low": 0.03, "high": 1.0, "log": True, "bound": [0.003, 2.0]}},
    "bases": {"fedavg": {}},
    "methods": {
        "fedsam": {"base": "fedavg", "points": {"rho": [0, 0.1]}, "beyond": 0.2},
        "fedgf": {
            "base": "fedavg",
            "points": {"rho": [0, 0.1]},
            "beyond": 0.2,
            "fixed": {"T_D": float("inf"), "rho_g": 0.1, "W": 30},
            "further": [{"T_D": {"times_distance": 1}}, {"T_D": {"times_distance": 2}}],
        },
    },
    "pairs": {"ten": [["fedsam", "fedavg"], ["fedgf", "fedavg"]]},
    "equal_compute": {"k2": {"local_steps": 2}, "t2": {"rounds": 2}},
    "rule": {
        "unit": "tuning_seed", "test": "sign_flip", "corrected_over": "all pairs", "alpha": 0.05, "interval": 0.95,
        "least_units": 6,
    },
    "same_against_itself": {"values_of": "next_tuning_seed", "resamples": 10, "random_signs": True},
    "contrasts": {"noise": "noise.yaml"},
    "references": {"central": "central.yaml"},
    "budget": {
        "core_hours": 1,
        "order": ["rounds", "main.ten", "main.equal_compute", "main.itself", "central", "noise"],
    },
}  # fmt: skip

NOISE = {
    "name": "tiny_noise",
    "extends": "experiments.yaml",
    "dataset": {"name": "mnist1d", "signals": 60, "noise": 0.5},
}
CENTRAL = {
    "name": "tiny_central",
    "extends": "experiments.yaml",
    "grid": {"partition": [{"name": "centralized"}], "participation": [{"active": 1}]},
    "methods": {"fedsam": {}},
}


def write(folder: Path, **changes: Any) -> Path:
    """Write the grid's files; the file of the protocol, with other values of some of its keys."""
    files = {"experiments": EXPERIMENT, "noise": NOISE, "central": CENTRAL, "search": {**PROTOCOL, **changes}}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return folder / "search.yaml"
