"""Read what the runs of an experiment have measured, and their analyses, into one data frame.

The lists of the experiment say which files of the store are read, and so which runs are shown. The columns that name a
cell are filled from the list's path. A missing list is a missing cell, not an error; so is a list with a run that was
removed, which is named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.pictures import read_pictures
from fedflat.analysis.analyses.provenance import (
    PROVENANCE_COLUMNS,
    TEXT_COLUMNS,
    first_differing_option,
    name_value_pairs,
)
from fedflat.analysis.analyses.stored import COLUMNS
from fedflat.analysis.layouts.quantities import METRICS_FILE, round_columns
from fedflat.analysis.measures.forward_passes import DIFFERENCES
from fedflat.bench.experiments.address import IDS, CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import RUN_FILES, ResultPaths
from fedflat.bench.experiments.sections.evaluation import TEST, TRAIN
from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.files.csv_json import read_checked_csv
from fedflat.bench.files.left_out import leave_out
from fedflat.bench.files.lists import read_list
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics import EVERYWHERE
from fedflat.bench.training.current import first_differing_field
from fedflat.bench.training.lists import listed_runs
from fedflat.bench.training.run_directory import RunDirectory, identified, is_complete


@dataclass(frozen=True)
class TidyFile:
    """One kind of rows: the columns that their readers need, columns that only some of the files have (NaN in the rows
    of the others), and whether the rows of one seed are read."""

    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()
    per_seed: bool = False


_METRICS = (
    "identity",
    "seed",
    "round",
    *(f"{subset}_{name}" for subset in (TRAIN, TEST) for name in EVERYWHERE),
    "diverged",
    "code",
)
_KINDS = (
    TidyFile(_METRICS, optional=("stopped", "missing_images")),
    TidyFile(("client", "index", "label"), per_seed=True),
)
FILES = dict(zip(RUN_FILES, _KINDS, strict=True))
"""Tidy files of runs by their kind; every other kind is the name of an analysis."""


@dataclass(frozen=True)
class Tidy:
    """The rows of one experiment under a results folder.

    `analyses`: its analyses by name, with their options; `write_again`: the command that writes a list again.
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
        """The path of a list, or of a split, of a cell; it need not exist."""
        return self.paths.tidy(self.experiment.name, cell.path, file, seed)

    def has_runs(self) -> bool:
        """Whether any cell of the experiment has been trained."""
        return any(self.path("metrics", cell).is_file() for cell in self.experiment.addresses)

    def gather(self, file: str, cells: Iterable[CellAddress], seed: int = 0, also: Sequence[str] = ()) -> pd.DataFrame:
        """The rows of one kind for all given cells that have them: id columns, then those of the rows.

        `also`: columns that only some of the files may have; NaN in the rows of the others.

        A damaged file is refused; the error names the command that writes it again. Outdated numbers are refused: a
        `UserError` if the listed runs, or the runs that they were compared with, have another configuration than the
        experiment, or were analysed with other options. Splits contain no results of runs and are not checked for that;
        if a cell has no separate file of the split, the file of the run is read.
        """
        kind = FILES.get(file) or TidyFile(
            ("identity", "seed", *self.analyses[file].columns, *PROVENANCE_COLUMNS), optional=DIFFERENCES
        )
        definition = [] if file in FILES else ["definition"]
        measured = round_columns() if file == METRICS_FILE else ()
        columns = list(dict.fromkeys([*IDS, "seed", *kind.columns, *definition, *kind.optional, *measured, *also]))
        frames = []
        for cell in dict.fromkeys(cells):
            tables = self._tables(file, cell, seed, kind)
            frames += [table.assign(**cell.columns) for table in tables if not table.empty]
        whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        return whole.reindex(columns=columns)

    def _tables(self, file: str, cell: CellAddress, seed: int, kind: TidyFile) -> Iterable[pd.DataFrame]:
        """The rows of a cell, by run."""
        if file == "partition":
            return self._splits(cell, seed)
        return self._metrics(cell) if file == "metrics" else self._analysis(file, cell, kind)

    def _splits(self, cell: CellAddress, seed: int) -> Sequence[pd.DataFrame]:
        drawn, own = self.path("partition", cell, seed), self.experiment.cell(cell.path).runs[0].with_seed(seed)
        if drawn.is_file():
            columns = ("client", "index", "label")
            return [read_checked_csv(drawn, columns, self.write_again(drawn), whole=columns).assign(seed=seed)]
        run = self.paths.run(own)
        return [RunDirectory(run).partition().assign(seed=seed)] if is_complete(run) else []

    def _metrics(self, cell: CellAddress) -> Iterator[pd.DataFrame]:
        """The metrics of the listed runs.

        The column `missing_images` exists only if published images were missing: tables then judge no number of a run.
        """
        file = self.path("metrics", cell)
        if not file.is_file():
            return
        evaluation = self.experiment.cell(cell.path).runs[0].evaluation
        evaluation.require_test(f"a table or figure of experiment {self.experiment.name}")
        wanted = self._identities(cell.path)
        listed = listed_runs(file, self.results, self.write_again(file))
        for one in listed:
            if wanted.get(one.seed) != one.identity:
                raise self._outdated(file, cell, one.seed, one.place)
        for one in listed if self._are_there(file, [one.place for one in listed]) else ():
            run = one.run
            missing = {"missing_images": run.missing_images} if run.missing_images else {}
            yield identified(run.metrics(), run.identity, one.seed).assign(code=run.fingerprint, **missing)

    def _analysis(self, name: str, cell: CellAddress, kind: TidyFile) -> Iterator[pd.DataFrame]:
        """The rows of the listed files of an analysis."""
        file, wanted = self.path(name, cell), self._identities(cell.path)
        remedy = self.write_again(file)
        rows_of_list = read_list(file, COLUMNS, remedy) if file.is_file() else []
        places = [self.results / row["path"] for row in rows_of_list]
        if not self._are_there(file, [place.parents[1] for place in places]):
            return
        for row, place in zip(rows_of_list, places, strict=True):
            seed = int(row["seed"])
            if wanted.get(seed) != row["identity"]:
                raise self._outdated(file, cell, seed, place.parents[1])
            damaged = f"delete it, and {remedy}"
            rows = read_checked_csv(place, kind.columns, damaged, texts=TEXT_COLUMNS, whole=("seed",))
            if not rows.empty and (set(rows["seed"]), set(rows["identity"])) != ({seed}, {row["identity"]}):
                raise DamagedFileError(place, "it is of another run", damaged)
            self._check_provenance(place, rows, cell, self.analyses[name])
            yield read_pictures(place.parent, rows, self.analyses[name].pictures, f"delete '{place}', and {remedy}")

    def _are_there(self, file: Path, runs: Iterable[Path]) -> bool:
        """Whether all runs of a list are there; else the list is named, and its cell counts as one without results."""
        missing = next((run for run in runs if not run.is_dir()), None)
        if missing is not None:
            leave_out(file, f"'{file}' lists '{missing}', which is missing: {self.write_again(file)}")
        return missing is None

    def _identities(self, cell: str) -> dict[int, str]:
        """The identities, by seed, of the runs that the experiment has in a cell now."""
        return {run.seed: run.identity for run in self.experiment.cell(cell).runs}

    def _check_provenance(self, path: Path, frame: pd.DataFrame, cell: CellAddress, analysis: Analysis) -> None:
        options = name_value_pairs(analysis.inputs().items())
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

    def _outdated(self, file: Path, cell: CellAddress, seed: int, place: Path) -> UserError:
        """The error of a list with another run than the experiment has now: what differs, and what the user can do."""
        wanted, name = {run.seed: run for run in self.experiment.cell(cell.path).runs}, self.experiment.name
        lists = f"'{file}' lists seed {seed} of another configuration than that of experiment {name}"
        if seed not in wanted:
            return UserError(f"{lists}, whose seeds are {', '.join(map(str, wanted))}: {self.write_again(file)}")
        difference = ""
        with suppress(UserError):  # the run is missing or cannot be read
            difference = f" ({first_differing_field(RunDirectory(place).config, wanted[seed])})"
        return UserError(f"{lists}{difference}: give the --set values that its runs had, or {self.write_again(file)}")


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
