"""The trials of searches without early stopping: those of an experiment, and those that are stored with a grid.

results/baselines/GRID/trials.csv has one row per trial: the values that were tried, and the score after the last round.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedflat.analysis.comparison.baselines import folder_of
from fedflat.analysis.comparison.run_table import as_json
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.installed import begin_as_copy
from fedflat.bench.experiments.results import TRIALS, ResultPaths
from fedflat.bench.files.csv_json import read_checked_csv, write_checked_csv
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.input.errors import UserError, first_few
from fedflat.bench.input.frozen import NAME
from fedflat.bench.training.directories.open_runs import no_empty_folders
from fedflat.bench.tuning.cell_search import CellSearch, seed_of
from fedflat.bench.tuning.halving import RungStep
from fedflat.bench.tuning.score import LAST, in_words

KEY = [*IDS, "trial"]
"""Columns in which no two stored trials are equal: a cell has one search."""

COLUMNS = [
    "experiment", *KEY, "title", "values", "score", "outcome", "reason", "seconds",
    "rounds", "seed", "validation", "scored", "identity", "code", "search",
]  # fmt: skip
"""`values`: a JSON object of what was tried; `score`: in percent, empty if the trial failed, and `scored` says what it
is; `search`: the hash of what all trials of a cell share, such as ranges, seed and rounds."""

_TEXTS = ["experiment", *IDS, "title", "values", "outcome", "reason", "scored", "identity", "code", "search"]
_WHOLE = ["trial", "rounds", "seed"]


def collect(requested: RequestedExperiment) -> pd.DataFrame:
    """The trials of an experiment, one row each; a `UserError` if searches are missing, or stop trials early."""
    experiment, missing = requested.experiment, list[str]()
    if rungs := experiment.tuning.rungs:
        raise UserError(
            f"the search of experiment {experiment.name} stops trials early (rungs {', '.join(map(str, rungs))}), so "
            "that their scores after all rounds are unknown (allowed: tuning: {rungs: []})"
        )
    titles, rows = method_titles(experiment), []
    for path in experiment.paths():
        search = CellSearch.of(experiment, path, requested.paths.tuning(experiment.name, path))
        search.read()
        if search.next_step is not None:
            missing.append(path)
            continue
        for trial in search.trials[: search.count]:
            result = search.results[RungStep(trial.number, 0)]
            rows.append(
                {
                    "experiment": experiment.name,
                    **search.cell.address.columns,
                    "trial": trial.number,
                    "title": titles[search.cell.address.method],
                    "values": as_json(trial.values),
                    "score": result.score,
                    "outcome": result.outcome,
                    "reason": result.reason,
                    "seconds": round(result.seconds, 3),
                    "rounds": search.rungs[0],
                    "identity": trial.run.identity,
                    "code": result.code,
                    "search": search.identity,
                }
            )
    if missing:
        raise UserError(
            f"the searches of {len(missing)} of {len(experiment.paths())} cells of experiment {experiment.name} have "
            f"not ended under '{requested.results}', such as {first_few(missing, 1)}; end them with: "
            f"{requested.snakemake(f'{requested.target}_tune')}"
        )
    score = in_words(experiment.report or LAST)
    table = pd.DataFrame(rows).assign(seed=seed_of(experiment), validation=experiment.tuning.validation, scored=score)
    return table.astype({"score": float})[COLUMNS]


def file_of(grid: str, folder: Path | None = None) -> Path:
    """The file of the trials that are stored with a grid; `folder` None: that of the grid."""
    return (folder or folder_of(grid)) / TRIALS


def load_trials(grid: str, folder: Path | None = None) -> pd.DataFrame | None:
    """The trials that are stored with a grid; None if there are none. A `UserError` if the file is incomplete."""
    file = file_of(grid, folder)
    if not file.is_file():
        return None
    remedy = (
        f"restore it, or delete it and store the trials with: fedflat baselines add-trials EXPERIMENT --grid {grid}"
    )
    table = read_checked_csv(
        file, COLUMNS, remedy, texts=_TEXTS, whole=_WHOLE, keys=KEY, keep_default_na=False, na_values=[""]
    )
    for cell, rows in table.groupby(IDS, sort=False):
        if sorted(rows["trial"]) != list(range(len(rows))) or rows["search"].nunique() != 1:
            raise UserError(f"'{file}' lacks trials of {'/'.join(map(str, cell))}, or mixes searches: {remedy}")
    return table.fillna(dict.fromkeys(_TEXTS, "")).astype({"score": float})[COLUMNS]


def add_trials(
    requests: Sequence[RequestedExperiment], grid: str, folder: Path | None = None, *, replace: bool = False
) -> Path:
    """Store all trials of experiments with a grid, whose other trials are kept; return the file.

    A `UserError`, and nothing is written, if searches have not ended or stopped trials early, or if a cell has stored
    trials already. With `replace`, those of these experiments and of the same cells are replaced.
    """
    if not re.fullmatch(NAME, grid):
        raise UserError(f"--grid '{grid}': allowed are lower-case letters, digits and '_'")
    file = file_of(grid, folder or ResultPaths().baselines(grid))
    added = pd.concat([collect(requested) for requested in requests], ignore_index=True)
    file.parent.parent.mkdir(parents=True, exist_ok=True)
    with no_empty_folders([file]), folder_lock(file.parent) as is_free:
        if not is_free:
            raise UserError(f"another process is writing '{file.parent}'")
        stored = load_trials(grid, folder)
        if stored is not None and replace:
            again = stored[IDS].merge(added[IDS].drop_duplicates(), on=IDS, how="left", indicator=True)["_merge"]
            stored = stored[~(again.eq("both").to_numpy() | stored["experiment"].isin(added["experiment"]))]
        together = pd.concat([*([] if stored is None else [stored]), added], ignore_index=True)
        if (twice := together.duplicated(KEY)).any():
            first = "/".join(together.loc[twice, IDS].iloc[0])
            raise UserError(f"'{file}' has trials of {first} already; --replace replaces them")
        if folder is None:
            begin_as_copy(file.parent)
        write_checked_csv(file, together)
    return file
