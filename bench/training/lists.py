"""The list of the runs that an experiment has in a cell: what tables and figures read, and the view by names.

    label,seed,identity,path,training
    fedsam,0,0123456789abcdef,store/digits/dirichlet-0.1/4-of-20/fedsam-3f2a9c1d/seed-0,fedcba9876543210

`path` is relative to the folder of results, so that the folder can be moved. `training` is another one after the run
was trained again. A list is written when all its runs are finished, and it is outdated if it would be another one now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedflat.bench.experiments.experiment import Cell
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.files.lists import read_list, write_list
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.current import current_run
from fedflat.bench.training.run_directory import PROVENANCE, RunDirectory

COLUMNS = ("label", "seed", "identity", "path", "training")


@dataclass(frozen=True)
class ListedRun:
    """A row of a list. `place`: the run directory; `remedy`: what to do if it is missing."""

    seed: int
    identity: str
    place: Path
    remedy: str

    @property
    def run(self) -> RunDirectory:
        """The run; a `UserError` if it is missing, or another one."""
        if not self.place.is_dir():
            raise UserError(f"'{self.place}' is missing, but a list has it: {self.remedy}")
        run = RunDirectory(self.place)
        if run.identity != self.identity:
            raise UserError(f"'{self.place}' is of another configuration than a list says")
        return run


def write_runs(paths: ResultPaths, experiment: str, cell: Cell, runs: Sequence[RunDirectory]) -> None:
    """Write the list of the finished runs of a cell, in the order of its seeds."""
    write_list(paths.runs(experiment, cell.path), _rows(paths, cell, runs))


def listed_runs(file: Path, results: Path, remedy: str) -> list[ListedRun]:
    """The runs of a list in the folder `results`; `remedy` as for `read_list`."""
    rows = read_list(file, COLUMNS, remedy)
    return [ListedRun(int(row["seed"]), row["identity"], results / row["path"], remedy) for row in rows]


def training(run: Path) -> str:
    """A hash that is another one after the run in a directory was trained again."""
    return short_hash((run / PROVENANCE).read_bytes())


def is_current(paths: ResultPaths, experiment: str, cell: Cell, *, replace: bool = False) -> bool:
    """Whether the list of a cell has the runs that the cell has now, and none of them has to be trained.

    A damaged run has to be. User-defined data are not looked at. A `UserError` if a run contradicts, as for
    `current_run`.
    """
    runs = [current_run(paths.run(one), one, replace=replace or "damaged", inputs=False) for one in cell.runs]
    present = [run for run in runs if run is not None]
    file = paths.runs(experiment, cell.path)
    if len(present) < len(runs) or not file.is_file():
        return False
    try:
        return read_list(file, COLUMNS, "") == _rows(paths, cell, present)
    except DamagedFileError:
        return False


def _rows(paths: ResultPaths, cell: Cell, runs: Sequence[RunDirectory]) -> list[Mapping[str, str]]:
    return [
        {
            "label": cell.address.method,
            "seed": str(config.seed),
            "identity": config.identity,
            "path": run.path.relative_to(paths.root).as_posix(),
            "training": training(run.path),
        }
        for config, run in zip(cell.runs, runs, strict=True)
    ]
