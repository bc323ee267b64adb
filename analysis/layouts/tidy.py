"""Read the tidy CSV files of an experiment into one data frame.

The columns that name a cell are filled from the file's path. A missing file is a missing cell, not an error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.provenance import (
    PROVENANCE_COLUMNS,
    TEXT_COLUMNS,
    first_differing_option,
    name_value_pairs,
)
from fedflat.analysis.measures.forward_passes import DIFFERENCES
from fedflat.bench.experiments.address import IDS, CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import PARTITION, RUN_FILES, ResultPaths
from fedflat.bench.files.csv_json import read_checked_csv
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory, first_differing_field, is_complete


@dataclass(frozen=True)
class TidyFile:
    """One kind of tidy file: the columns that its readers need, columns that only some of the files have (NaN in the
    rows of the others), columns of which no two rows are equal, and whether each seed has a separate file."""

    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    per_seed: bool = False


_METRICS = (
    "identity",
    "seed",
    "round",
    "local_loss",
    "client_drift",
    "train_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "diverged",
    "code",
)
_OF_SEGMENTATION = ("train_miou", "test_miou", "test_miou_seen", "test_miou_unseen")
_KINDS = (
    TidyFile(_METRICS, optional=("stopped", "missing_images", *_OF_SEGMENTATION), keys=("seed", "round")),
    TidyFile(("client", "index", "label"), per_seed=True),
)
FILES = dict(zip(RUN_FILES, _KINDS, strict=True))
"""Tidy files of runs by their kind; every other kind is the name of an analysis."""


@dataclass(frozen=True)
class Tidy:
    """The tidy files of one experiment under a results folder.

    `analyses`: its analyses by name, with their options; `write_again`: the command that writes a file again.
    """

    results: Path
    experiment: Experiment
    analyses: Mapping[str, Analysis]
    write_again: Callable[[Path], str] = "write {} again".format

    @property
    def paths(self) -> ResultPaths:
        """The paths of the results."""
        return ResultPaths(self.results)

    def path(self, file: str, cell: CellAddress, seed: int = 0) -> Path:
        """The path of a tidy file of a cell, which need not exist."""
        return self.paths.tidy(self.experiment.name, cell.path, file, seed)

    def has_runs(self) -> bool:
        """Whether any cell of the experiment has been trained."""
        return any(self.path("metrics", cell).is_file() for cell in self.experiment.addresses)

    def gather(self, file: str, cells: Iterable[CellAddress], seed: int = 0, also: Sequence[str] = ()) -> pd.DataFrame:
        """The rows of one kind of tidy file for all given cells that have it: id columns, then the file's columns.

        `also`: columns that only some of the files may have; NaN in the rows of the others.

        A damaged file is refused; the error names the command that writes it again. Outdated numbers are refused: a
        `UserError` if the runs of a file, or the runs that they were compared with, have another configuration than the
        experiment, or were analysed with other options. Splits contain no results of runs and are not checked for that;
        if a cell has no separate file of the split, the file of the run is read.
        """
        kind = FILES.get(file) or TidyFile(
            ("identity", "seed", *self.analyses[file].columns, *PROVENANCE_COLUMNS), optional=DIFFERENCES
        )
        definition = [] if file in FILES else ["definition"]
        columns = list(dict.fromkeys([*IDS, "seed", *kind.columns, *definition, *kind.optional, *also]))
        frames = []
        for cell in dict.fromkeys(cells):
            path = self.path(file, cell, seed)
            run = self.paths.run(self.experiment.name, cell.path, seed)
            if file == "partition" and not path.is_file():
                path = run / PARTITION
            if not path.is_file():
                continue
            if file == "metrics":
                evaluation = self.experiment.cell(cell.path).runs[0].evaluation
                evaluation.require_test(f"a table or figure of experiment {self.experiment.name}")
            is_of_run = path == run / PARTITION and is_complete(run)  # an archive of figures has the split alone
            frame = RunDirectory(run).partition() if is_of_run else self._read(path, kind)
            if kind.per_seed:
                frame = frame.assign(seed=seed)
            else:
                self._check_identity(path, frame, cell)
            if file not in FILES:
                self._check_provenance(path, frame, cell, self.analyses[file])
            if not frame.empty:
                frames.append(frame.assign(**cell.columns))
        whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        return whole.reindex(columns=columns)

    def _read(self, path: Path, kind: TidyFile) -> pd.DataFrame:
        remedy = self.write_again(path)
        whole = ("client", "index", "label") if kind.per_seed else ("seed",)
        return read_checked_csv(path, kind.columns, remedy, texts=TEXT_COLUMNS, whole=whole, keys=kind.keys)

    def _identities(self, cell: str) -> dict[int, str]:
        """The identities, by seed, of the runs that the experiment has in a cell now."""
        return {run.seed: run.identity for run in self.experiment.cell(cell).runs}

    def _check_identity(self, path: Path, frame: pd.DataFrame, cell: CellAddress) -> None:
        wanted = self._identities(cell.path)
        for seed, identity in frame[["seed", "identity"]].drop_duplicates().itertuples(index=False, name=None):
            if wanted.get(seed) != identity:
                end = self._how_to_correct(cell, int(seed))
                raise UserError(f"'{path}' holds seed {seed} of another configuration{end}")

    def _check_provenance(self, path: Path, frame: pd.DataFrame, cell: CellAddress, analysis: Analysis) -> None:
        options = name_value_pairs(analysis.options().items())
        others = {label: self.experiment.compared_cell(cell, label).path for label in analysis.compared_labels()}
        rows = frame[["seed", "options", "compared_with"]].astype(object).fillna("").drop_duplicates()
        for seed, stated, compared_with in rows.itertuples(index=False, name=None):
            now = f"than experiment {self.experiment.name} has now: compute it again with snakemake"
            if (difference := first_differing_option(stated, options)) is not None:
                raise UserError(f"'{path}' was computed with other options ({difference}) {now}")
            if compared_with != name_value_pairs(
                (label, self._identities(other)[seed]) for label, other in others.items()
            ):
                raise UserError(f"'{path}' compares with other runs of {', '.join(others)} {now}")

    def _how_to_correct(self, cell: CellAddress, seed: int) -> str:
        """The end of an error message: what differs from the experiment, and what the user can do."""
        wanted = {run.seed: run for run in self.experiment.cell(cell.path).runs}
        place = self.paths.run(self.experiment.name, cell.path, seed)
        if seed not in wanted:
            return f" than that of experiment {self.experiment.name}, whose seeds are {', '.join(map(str, wanted))}"
        difference = first_differing_field(RunDirectory(place).config, wanted[seed]) if place.exists() else None
        if difference is None:
            return ": its run is missing, or was replaced later; compute it again with snakemake"
        return (
            f" than that of experiment {self.experiment.name} ({difference}): give the --set values that its runs had, "
            "or train the cell again (snakemake ... --config replace=true)"
        )


def of_setting(frame: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """The rows of one setting."""
    return _where(frame, setting.path.split("/"))


def of_cell(frame: pd.DataFrame, cell: CellAddress) -> pd.DataFrame:
    """The rows of one cell."""
    return _where(frame, cell.ids)


def _where(frame: pd.DataFrame, ids: Sequence[str]) -> pd.DataFrame:
    mask = np.ones(len(frame), dtype=bool)
    for column, value in zip(IDS, ids, strict=False):
        mask &= (frame[column] == value).to_numpy()
    return frame[mask]
