"""The stored baselines `tiny` of the experiment in little.yaml, and variants of it with tuned values."""

import json
from pathlib import Path

from fedflat.analysis.report.requested import RequestedExperiment
from tests.analysis.conftest import LITTLE, train_all

TINY = Path("results/baselines/tiny")
LR = {"low": 0.01, "high": 0.5, "log": True}
FOUND = {f"{partition}/4-of-20": {"training": {"lr": 0.2}} for partition in ("dirichlet-0.1", "iid")}
TUNED = {"experiment": "little", "trials": 7, "seed": 1000, "validation": 0.2, "score": "best", "rungs": [0.5]}


def requested(folder: Path, name: str = "little.yaml") -> RequestedExperiment:
    return RequestedExperiment(str(folder / name), folder / "results")


def contents(folder: Path = TINY) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def variant(folder: Path, name: str, change: tuple[str, str], method: str = "fedavg", **budget: object) -> str:
    """A file with other, tuned values of FedAvg in little.yaml, under this label, and its runs."""
    text = LITTLE.replace("name: little", f"name: {name}").replace(*change).partition("  fedsam:")[0]
    text = text.replace("fedavg: {}", f"{method}: {json.dumps({'name': 'fedavg', 'where': FOUND})}")
    tuned = {**TUNED, "ranges": {method: {"lr": LR}}, **budget}
    (folder / f"{name}.yaml").write_text(f"{text}tuned: {json.dumps(tuned)}\n", encoding="utf-8")
    train_all(folder / f"{name}.yaml", folder / "results")
    return f"{name}.yaml"
