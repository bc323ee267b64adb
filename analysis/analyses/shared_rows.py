"""Rows that the same analysis of the same run has in another experiment of the same results: they are taken."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from fedflat.analysis.analyses.provenance import TEXT_COLUMNS
from fedflat.bench.experiments.results import runs_folder, same_run_of_others
from fedflat.bench.files.csv_json import read_checked_csv
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.directories.shared_runs import TAKEN_FROM
from fedflat.bench.training.run_directory import PROVENANCE, RunDirectory


def shared_rows(
    out: Path, runs: Sequence[RunDirectory], wanted: Mapping[str, Any], columns: Sequence[str]
) -> pd.DataFrame | None:
    """The rows that another experiment has, with their origin in the column `TAKEN_FROM`; None: no such rows.

    `out`: the file that the analysis writes; None if it is not in the folder of results that contains the runs. `runs`:
    the analysed run, and those with which it is compared; the other experiment must have them from the same training.
    `wanted`: the values of columns that the rows must have, and `columns`: further columns that they must have.
    """
    folder = runs_folder(runs[0].path)
    if folder is None or folder.with_name("analysis") not in out.absolute().parents:
        return None
    for file in _same_file_of_others(folder, out.name, runs):
        with suppress(UserError):  # damaged, or of an earlier version
            table = read_checked_csv(file, [*wanted, *columns], "", texts=TEXT_COLUMNS)
            same = [table[name].fillna("") == value for name, value in wanted.items()]
            rows: pd.DataFrame = table[pd.concat(same, axis=1).all(axis=1)]
            if not rows.empty:
                return rows.reset_index(drop=True).assign(**{TAKEN_FROM: file.relative_to(folder.parent).as_posix()})
    return None


def _same_file_of_others(folder: Path, name: str, runs: Sequence[RunDirectory]) -> Iterator[Path]:
    """The files with a name for the same cell in other experiments that have all these runs, and are newer than they.

    `folder`: the runs of all experiments.
    """
    for place in same_run_of_others(runs[0].path):
        experiment = place.parents[4]
        theirs = [experiment.joinpath(*run.path.absolute().parts[-5:]) for run in runs]
        file = folder.with_name("analysis") / place.parent.relative_to(folder) / name
        with suppress(UserError, OSError):  # a run is damaged, or something is missing
            written = file.stat().st_mtime
            if all(map(_is_same_training, runs, theirs)) and all(
                written >= (run / PROVENANCE).stat().st_mtime for run in theirs
            ):
                yield file


def _is_same_training(run: RunDirectory, other: Path) -> bool:
    """Whether one of two runs was taken from the other, or both from a third one."""
    here, there = ({**one.provenance, TAKEN_FROM: None} for one in (run, RunDirectory(other)))
    return here == there
