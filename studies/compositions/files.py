"""The experiments of a search among compositions, as files that extend the grid's experiment."""

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.files import experiment_names
from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError, unknown
from studies.compositions.entries import GridEntries
from studies.compositions.triples import Triple, compositions

SCREENING, COMPOSED = "_screening", "_composed"
"""The ends of the names of the experiments: all triples in one setting, and the best ones in all settings."""

SCREENED = {"trials": 4, "rungs": [0.25, 0.5]}
"""How each triple is screened: of four trials, two go on after a quarter of the rounds, and one after half of them."""

SEED_DISTANCE = 2000
"""The seed of the screening minus the first seed of the grid; in other searches, this difference is 1000."""


def write_screening(grid: str, setting: str, rounds: int | None, trials: int | None, out: Path) -> int:
    """Write the experiment of all legal triples in one setting; return their number.

    `rounds`: None for half of the grid's; `trials`: None for four.
    """
    experiment = load_experiment(grid, {})
    if experiment.parts:
        raise UserError(f"experiment {experiment.name} has several parts: its compositions cannot be screened")
    settings = {place.path.partition("/")[2]: values for place, values in experiment.settings.items()}
    if setting not in settings:
        raise unknown(f"setting of experiment {experiment.name}", setting, settings)
    partition, participation = settings[setting]
    all_rounds = experiment.training.rounds
    sources = GridEntries.of(experiment)
    content = {
        "name": f"{experiment.name}{SCREENING}",
        "description": f"All legal triples of perturbation, correction and server on {experiment.name}.",
        "training": {"rounds": rounds or max(1, all_rounds // 2)},
        "tuning": {
            **SCREENED,
            **({} if trials is None else {"trials": trials}),
            "seed": experiment.grid.seeds[0] + SEED_DISTANCE,
        },
        "grid": {
            "partition": [partition.model_dump(mode="json", exclude_unset=True)],
            "participation": [participation.model_dump(mode="json", exclude_unset=True)],
        },
    }
    _write(content, grid, sources, compositions(), out)
    return len(compositions())


def write_best(grid: str, triples: Iterable[Triple], out: Path) -> None:
    """Write the experiment of some triples in all settings of the grid."""
    experiment = load_experiment(grid, {})
    content = {
        "name": f"{experiment.name}{COMPOSED}",
        "description": f"The best triples of the screening in all settings of {experiment.name}.",
    }
    _write(content, grid, GridEntries.of(experiment), triples, out)


def _write(content: dict[str, Any], grid: str, sources: GridEntries, triples: Iterable[Triple], out: Path) -> None:
    """Write a file that extends the grid's, with one line for each triple."""
    extended = grid if grid in experiment_names() else os.path.relpath(Path(grid).absolute(), out.parent.absolute())
    head = _as_yaml({"name": content.pop("name"), "extends": extended, **content}, flow=False)
    entries = (_as_yaml({sources.label(triple): sources.entry(triple)}, flow=True) for triple in triples)
    lines = "".join(f"  {entry[1:-2]}\n" for entry in entries)
    write_text(out, f"# Written by python -m studies.compositions.\n{head}methods:\n{lines}")


def _as_yaml(content: dict[str, Any], flow: bool) -> str:
    width = math.inf if flow else 118
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=flow, width=width, allow_unicode=True)
