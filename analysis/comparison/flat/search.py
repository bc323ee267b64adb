"""The trials of a search by a protocol, as they are stored with a grid: results/baselines/GRID/search.csv.

The file has all columns of the trials' own files: a method that is compared later starts from its base's trials.
"""

import re
from pathlib import Path

import pandas as pd

from fedflat.analysis.comparison.baselines import folder_of
from fedflat.bench.experiments.address import IDS, CellAddress
from fedflat.bench.experiments.installed import begin_as_copy
from fedflat.bench.experiments.results import TRIALS, ResultPaths
from fedflat.bench.files.csv_json import read_checked_csv, write_checked_csv
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import NAME

SEARCH = "search.csv"
KEY = [*IDS, "tuning_seed", "number"]
"""Columns in which no two stored trials are equal."""

_WHOLE = ("tuning_seed", "number", "rounds")
_TEXTS = (
    *IDS, "stage", "from", "values", "ends", "train_accuracy", "validation_accuracy", "fit_mb", "distance", "outcome",
    "reason", "identity", "code", "protocol", "search",
)  # fmt: skip
"""Numbers that decide about further trials are texts with all digits."""

_COLUMNS = (*KEY, *_TEXTS[len(IDS) :], "again", "rounds", "fitted", "fit_round", "cpu_seconds", "gradients")


def file_of(grid: str, folder: Path | None = None) -> Path:
    """The file of the trials that are stored with a grid; `folder` None: that of the grid."""
    return (folder or folder_of(grid)) / SEARCH


def load_search(grid: str, folder: Path | None = None) -> pd.DataFrame | None:
    """The trials that are stored with a grid, all texts; None if there are none."""
    file = file_of(grid, folder)
    return (
        _read(file, f"restore it, or store the trials with: fedflat baselines add-search {grid}")
        if file.is_file()
        else None
    )


def add_search(grid: str, results: Path, folder: Path | None = None) -> Path:
    """Store the trials of all searches of a grid's protocol that have ended, whose place takes that of stored ones.

    A `UserError`, and nothing is written, if there is none, or if they are of other protocols than the stored ones.
    """
    if not re.fullmatch(NAME, grid):
        raise UserError(f"grid '{grid}': allowed are lower-case letters, digits and '_'")
    files = sorted(ResultPaths(results).search(grid).glob(f"*/*/*/*/*/tuning-*/{TRIALS}"))
    if not files:
        raise UserError(f"no search of {grid} has ended under '{results}'; search with: fedflat search {grid}")
    added = pd.concat([_read(file, "delete it, and search again") for file in files], ignore_index=True)
    file = file_of(grid, folder or ResultPaths().baselines(grid))
    file.parent.parent.mkdir(parents=True, exist_ok=True)
    with folder_lock(file.parent) as is_free:
        if not is_free:
            raise UserError(f"another process is writing '{file.parent}'")
        stored = load_search(grid, folder)
        if stored is not None:
            searches = [*IDS, "tuning_seed"]
            again = stored[searches].merge(added[searches].drop_duplicates(), how="left", indicator=True)["_merge"]
            added = pd.concat([stored[again.to_numpy() != "both"], added], ignore_index=True)
        if added["protocol"].nunique() > 1:
            hashes = ", ".join(sorted(added["protocol"].unique()))
            raise UserError(f"'{file}': trials of several protocols ({hashes}; allowed: one)")
        if folder is None:
            begin_as_copy(file.parent)
        write_checked_csv(file, added)
    return file


def trials_of(trials: pd.DataFrame, cell: CellAddress) -> pd.DataFrame:
    """The trials of a cell."""
    return trials[(trials[IDS] == list(cell.ids)).all(axis=1)]


def _read(file: Path, remedy: str) -> pd.DataFrame:
    return read_checked_csv(file, _COLUMNS, remedy, texts=_TEXTS, whole=_WHOLE, keys=KEY)
