"""Stored searches for tests: all triples in one setting, and methods with known scores in four settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.baselines import CURVE_IDS, Baselines, save
from fedflat.analysis.comparison.run_table import run_columns
from fedflat.analysis.layouts.run_columns import CURVE
from fedflat.bench.files.csv_json import write_checked_csv
from studies.compositions.triples import Triple, compositions, published
from tests.analysis.comparison.frames import SETTINGS, runs

COMPOSED = {"sam+feddyn+momentum": 90.0, "none+feddc+look_ahead": 84.0}
PUBLISHED = {"fedavg": 80.0, "fedsam": 86.0, "fedspeed": 85.0}
TRIPLES = {
    "fedavg": Triple("none", "none", "average"),
    "fedsam": Triple("sam", "none", "average"),
    "fedspeed": Triple("sam", "feddyn", "feddyn"),
}
VALUES = (
    '{"hyperparameters.rho": 0.1, "hyperparameters.server.beta": 0.9, "hyperparameters.swa.cycle": 1, '
    '"training.lr": 0.2}'
)


def row(label: str, triple: Triple, setting: tuple[str, str], score: float | None, **changes: Any) -> dict[str, Any]:
    """The stored best trial of a method in a setting."""
    return {
        "dataset": "digits", "partition": setting[0], "participation": setting[1], "method": label,
        "title": label.upper(), **triple._asdict(), "published": published().get(triple, ""), "score": score,
        "values": VALUES, "reason": "" if score is not None else "diverged in round 3", "identity": "i",
        "seconds": 3.0, "trials": 2, "rounds": 30, "rungs": "15/30", "validation": 0.2, "seed": 1000,
        "judged": "validation accuracy after the last round", "code": "c", "search": "s", **changes,
    }  # fmt: skip


def store_screening(folder: Path) -> None:
    """All triples, with scores that rise along each axis and one failure; momentum is the best server."""
    rng = np.random.default_rng(0)
    rows = []
    for triple in compositions():
        score = 50 + 2 * rng.normal() + 10 * (triple.server == "momentum") + 5 * (triple.perturbation == "sam")
        label = next((name for name, one in TRIPLES.items() if one == triple), triple.label)
        rows.append(row(label, triple, SETTINGS[2], score, seed=2000))
    rows[7]["score"], rows[7]["reason"] = None, "diverged in round 3"
    write_checked_csv(folder / "screening.csv", pd.DataFrame(rows))


def store_tuned(folder: Path, name: str, scores: Mapping[str, float], **changes: Any) -> None:
    """The search of methods in four settings."""
    rows = [
        row(label, TRIPLES.get(label) or Triple(*label.split("+")), setting, score + k) | changes
        for label, score in scores.items()
        for k, setting in enumerate(SETTINGS)
    ]
    write_checked_csv(folder / f"{name}.csv", pd.DataFrame(rows))


def store_runs(folder: Path, accuracies: Mapping[str, float], own: tuple[str, ...], seeds: int = 10) -> None:
    """The runs of these methods as baselines of `grid`, those of `own` as those of `grid_composed`."""
    hyperparameters = '{"rho": 0.1, "server.beta": 0.9, "swa": {"cycle": 1}}'
    values = {"hyperparameters": hyperparameters, "training": '{"lr": 0.2}', "variant": "tuned", "trials": 2}
    table = runs(accuracies, seeds).assign(**values)
    table["train_accuracy"] = table["test_accuracy"] + 1.0
    table = table.reindex(columns=run_columns()).assign(experiment="e", code="c", configuration="{}")
    is_own = table["method"].isin(own)
    for name, rows in (("grid", table[~is_own]), ("grid_composed", table[is_own])):
        curves = rows[CURVE_IDS].assign(round=30, **dict.fromkeys(CURVE, 1.0))
        save(folder / name, Baselines(rows.reset_index(drop=True), curves))
