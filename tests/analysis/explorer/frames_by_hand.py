"""Frames of a small experiment by hand, with known orders: three methods and an own one, two settings, two variants."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd

from fedflat.analysis.explorer.page import Explorer
from fedflat.analysis.figures.palette import Style, style
from fedflat.bench.methods.catalog import CATALOG

SETTINGS = (("digits", "dirichlet-0.6", "4-of-20"), ("digits", "dirichlet-0.1", "4-of-20"))
OWN = "mine"
ROUNDS = np.arange(2, 41, 2)

FINAL = {"fedavg": 80.0, "scaffold": 84.0, "fedsam": 90.0, OWN: 87.0}
"""Test accuracy after the last round; FedSAM is the best one at the end, and the worst one at the beginning."""

SPEED = {"fedavg": 5.0, "scaffold": 6.0, "fedsam": 10.0, OWN: 9.0}
"""Rounds until a method has reached 63 % of its accuracy."""

SHARP = {"fedavg": 40.0, "scaffold": 30.0, "fedsam": 10.0, OWN: 20.0}
HOSTILE = "</script><img src=x onerror=alert(1)> & \"'"


def curve(method: str, seed: int, harder: float) -> pd.DataFrame:
    """Accuracies that rise to the final one; a round costs one megabyte, or two with SCAFFOLD."""
    accuracy = (FINAL[method] - harder) * (1 - np.exp(-ROUNDS / SPEED[method])) + 0.25 * seed
    return pd.DataFrame(
        {
            "round": ROUNDS,
            "test_accuracy": accuracy,
            "test_loss": 2 - accuracy / 60,
            "communicated_mb": ROUNDS * (2.0 if method == "scaffold" else 1.0),
            "gradients": ROUNDS * (200 if method in ("fedsam", OWN) else 100) + seed,
        }
    )


def frames(seeds: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The run table and the curve table; one run of FedAvg diverged. Columns are those that the page reads."""
    runs, curves = [], []
    for variant, gain in (("untuned", 0.0), ("tuned", 2.0)):
        for number, setting in enumerate(SETTINGS):
            for method in FINAL:
                for seed in range(seeds):
                    points = curve(method, seed, 10.0 * number - gain)
                    gone = (variant, number, method, seed) == ("untuned", 1, "fedavg", 0)
                    ids = dict(zip(("dataset", "partition", "participation"), setting, strict=True))
                    key = {**ids, "method": method, "seed": seed, "variant": variant}
                    key["identity"] = f"{len(runs):016x}"
                    last = points.iloc[-1]
                    curves.append(points.iloc[: 5 if gone else None].assign(**key))
                    runs.append(
                        {
                            **key,
                            "title": HOSTILE if method == OWN else CATALOG[method].title,
                            "trials": 16 if gain else 0,
                            "tuning": "",
                            "outcome": "diverged" if gone else "finished",
                            "last_round": 11 if gone else 40,
                            "test_accuracy": np.nan if gone else last["test_accuracy"],
                            "test_loss": np.nan if gone else last["test_loss"],
                            "generalisation_gap": np.nan if gone else 1 / 3 + seed,
                            "rounds_to_80": np.nan if method == "fedavg" else 20.0,
                            "lambda_max": SHARP[method] + seed,
                            "drift": np.nan,
                            "communicated_mb": last["communicated_mb"],
                            "gradients": last["gradients"],
                            "seconds": 1.5 + seed,
                            "model": "cnn_gn",
                            "rounds": 40,
                            "local_epochs": 2.0,
                            "local_steps": np.nan,
                            "batch_size": 16,
                            "hyperparameters": json.dumps({"rho": 0.05} if method == "fedsam" else {}),
                            "training": json.dumps({"lr": 0.1}),
                            "code": "0.1.0+0123456789abcdef",
                            "versions": json.dumps({"torch": "2.9.0"}),
                            "device": "cpu (x86_64)",
                            "experiment": "mine/it's.yaml" if gain else "quick",
                        }
                    )
    return pd.DataFrame(runs), pd.concat(curves, ignore_index=True)


def surfaces(runs: pd.DataFrame) -> pd.DataFrame:
    """A bowl around each final model of the first setting, seed 0, tuned; steeper for sharper methods."""
    axis = np.linspace(-1, 1, 7)
    a, b = (grid.ravel() for grid in np.meshgrid(axis, axis, indexing="ij"))
    chosen = runs[(runs["seed"] == 0) & (runs["variant"] == "tuned") & (runs["partition"] == "dirichlet-0.6")]
    ids = ["dataset", "partition", "participation", "method", "seed", "variant"]
    return pd.concat(
        [
            pd.DataFrame(
                {"a": a, "b": b, "loss": SHARP[row["method"]] * (a**2 + 2 * b**2), "error": 10 * (a**2 + b**2)}
            )
            .assign(name="surface", definition="mean cross-entropy")
            .assign(**{name: row[name] for name in ids})
            for row in chosen.to_dict("records")
        ],
        ignore_index=True,
    )


def looks() -> dict[str, Style]:
    """The figures' styles; the own method is black and on top."""
    return {name: style(CATALOG[name]) for name in FINAL if name != OWN} | {OWN: Style("#000000", (0, ()), on_top=True)}


def explorer(seeds: int = 3) -> Explorer:
    """A page with everything that it can show, and texts of others that are markup."""
    runs, curves = frames(seeds)
    return Explorer(
        title=f"By hand {HOSTILE}",
        description=HOSTILE,
        runs=runs,
        curves=curves,
        looks=looks(),
        reported="after the last round",
        surfaces=surfaces(runs),
        own=OWN,
        verdict=f"**Better** than 2 of 3. {HOSTILE}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
        links={"Tables and figures": "index.html"},
    )


def with_segmentation() -> Explorer:
    """A page whose second setting is one of segmentation, with a mean IoU that falls as the accuracy rises."""
    page, second = explorer(), SETTINGS[1][1]
    runs, curves = (
        frame.assign(test_miou=(100 - frame["test_accuracy"]).where(frame["partition"] == second))
        for frame in (page.runs, page.curves)
    )
    return replace(page, runs=runs, curves=curves)
