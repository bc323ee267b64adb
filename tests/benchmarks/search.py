"""Trials of one search, one by one and in one cohort: processor seconds, which other processes change least."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.training.unfinished import train_to
from tests.benchmarks.report import Cell, Section, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.sizes import Search

COHORT = {"backend": "cohort", "seeds": "together"}
CONTENDERS: dict[str, tuple[bool, dict[str, Any]]] = {
    "one by one, values fixed": (False, COHORT | {"values": "fixed"}),
    "in one cohort": (True, COHORT | {"values": "by_row"}),
    "in one cohort, 40 rows": (True, COHORT | {"values": "by_row", "most_rows": 40}),
}
"""Whether all trials share a call, and the engine's settings, by name."""


def trials(sizes: Search, method: str, engine: dict[str, Any]) -> list[RunConfig]:
    """Trials of one method and seed with different learning rates and weight decays."""
    found = []
    for number in range(sizes.trials):
        changes = {
            "training.rounds": sizes.rounds,
            "training.lr": 0.05 * 1.15**number,
            "training.weight_decay": 1e-4 * 1.2**number,
            "evaluation": {"every": sizes.rounds},
            **{f"engine.{key}": value for key, value in engine.items()},
        }
        experiment = load_experiment(sizes.experiment, changes)
        path = next(path for path in experiment.paths() if path.endswith(f"/{method}"))
        found.append(experiment.cell(path).runs[0])
    return found


def cpu_seconds(sizes: Search, method: str, contender: str, device: torch.device) -> float:
    """The processor time of all trials, without that of reading data and building models."""
    together, engine = CONTENDERS[contender]
    runs = trials(sizes, method, engine)
    with TemporaryDirectory() as place:
        folders = [Path(place) / str(number) for number in range(len(runs))]
        if together:
            return sum(one.cpu_seconds for one in train_to(runs, folders, sizes.rounds, device))
        alone = [train_to([run], [folder], sizes.rounds, device) for run, folder in zip(runs, folders, strict=True)]
        return sum(one.cpu_seconds for [one] in alone)


def measure(setting: Setting) -> list[Section]:
    """One section with a table of all methods."""
    sizes, rows = setting.sizes.search, list[tuple[Cell, ...]]()
    for method in sizes.methods:
        before = None
        for contender in CONTENDERS:
            setting.progress(f"search of {method}: {contender}")
            seconds = cpu_seconds(sizes, method, contender, torch.device(setting.device))
            before = before or seconds
            each = 1000 * seconds / sizes.trials / sizes.rounds
            rows.append((method, contender, seconds, each, before / seconds))
    about = (
        f"{sizes.trials} trials of {sizes.rounds} rounds of `{sizes.experiment}`, with different learning rates and "
        "weight decays: processor seconds of training and the last evaluation. `ms` are those of a trial's round."
    )
    return [Section("Trials of a search", [Table(about, ("method", "trials", "s", "ms", "gain"), rows)])]
