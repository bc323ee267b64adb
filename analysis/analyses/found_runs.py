"""The finished runs that a folder stands for: a run directory, folders of the store, or the lists of an experiment."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedflat.bench.code.trusted_code import UntrustedCodeError
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.results import RUNS, STORE
from fedflat.bench.files.left_out import leave_out
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.directories.run_files import check_run
from fedflat.bench.training.lists import ListedRun, listed_runs
from fedflat.bench.training.run_directory import RunDirectory, is_complete, run_directories

PLACE = ("experiments", "experiment", *IDS)
"""The folders above a list, below that of results."""


@dataclass(frozen=True)
class CellRuns:
    """Finished runs by seed that differ in their seeds only; `names`: the values of `IDS` for them."""

    names: Mapping[str, str]
    by_seed: Mapping[int, RunDirectory]

    @property
    def labels(self) -> tuple[str, str]:
        """The labels of the method and the partition."""
        return self.names["method"], self.names["partition"]

    @property
    def place(self) -> Path:
        """The folder with the runs."""
        return next(iter(self.by_seed.values())).path.parent

    @property
    def threads(self) -> int:
        """The CPU threads that suit their model."""
        return next(iter(self.by_seed.values())).config.model.threads(available_cores())


def found_runs(folder: Path) -> list[CellRuns]:
    """All finished runs in a folder, those that differ in their seeds only together; a `UserError` if there is none.

    In a list, runs have the labels of its experiment; elsewhere, those of their configurations. A folder of results
    stands for its store. Of several runs, those that cannot be read are named and left out.
    """
    if is_complete(folder):
        return [_by_configuration([RunDirectory(folder)])]
    lists = _lists_of(folder)
    found = [*map(_listed, lists)] if lists else grouped(places_in(folder))
    if not found:
        raise UserError(f"none of the runs in '{folder}' can be read")
    return found


def _lists_of(folder: Path) -> list[Path]:
    """The lists that a folder stands for; none for a folder of results, or of the store."""
    return [] if (folder / STORE).is_dir() else lists_in(folder)


def places_in(folder: Path) -> list[Path]:
    """The directories of these runs, of which nothing is read."""
    if is_complete(folder):
        return [folder]
    if lists := _lists_of(folder):
        return [one.place for file in lists for one in runs_of_list(file)]
    folder = folder / STORE if (folder / STORE).is_dir() else folder
    if not (places := run_directories(folder)):
        raise UserError(
            f"no finished run in '{folder}' (allowed: a run directory, a folder with some below it, such as "
            "results/store, or a folder with lists of them, such as results/experiments/quick)"
        )
    return places


def grouped(places: Iterable[Path]) -> list[CellRuns]:
    """The runs in run directories of a store, those that differ in their seeds only together."""
    folders = defaultdict[Path, list[Path]](list)
    for place in places:
        folders[place.parent].append(place)
    readable = [[run for place in runs if (run := _readable(place)) is not None] for runs in folders.values()]
    return [_by_configuration(runs) for runs in readable if runs]


def _readable(place: Path) -> RunDirectory | None:
    """A run of several; None, and it is named, if it cannot be read."""
    try:
        run = RunDirectory(place)
        check_run(run)
        run.config  # noqa: B018 - read once, and kept
        return run
    except UntrustedCodeError:
        raise
    except UserError as error:
        leave_out(place, error)
        return None


def find_runs(folder: Path) -> CellRuns:
    """The runs of a folder, which must differ in their seeds only."""
    found = found_runs(folder)
    if len(found) > 1:
        raise UserError(f"'{folder}' has runs of {len(found)} configurations (allowed here: of one)")
    return found[0]


def lists_in(folder: Path) -> list[Path]:
    """The lists of runs in a folder, which are in results/experiments/EXPERIMENT/CELL."""
    files = sorted(folder.rglob(f"{RUNS}.csv"))
    return [file for file in files if file.absolute().parts[-len(PLACE) - 1 :][0] == PLACE[0]]


def runs_of_list(file: Path) -> list[ListedRun]:
    """The runs of a list in a folder of results, which need not exist."""
    experiment, cell = file.absolute().parts[-len(PLACE)], "/".join(file.absolute().parts[-len(PLACE) + 1 : -1])
    return listed_runs(
        file,
        results_of(file),
        f"repeat the command that trained the cell, such as fedflat run {experiment} {cell}: it keeps finished runs, "
        "and writes the list again",
    )


def results_of(file: Path) -> Path:
    """The folder of results that contains a list; a `UserError` if the place is not that of a list."""
    if file.absolute().parts[-len(PLACE) - 1 :][:1] != PLACE[:1]:
        raise UserError(f"'{file}' is not the place of a list (allowed: results/experiments/EXPERIMENT/CELL/NAME.csv)")
    return (file if len(file.parents) > len(PLACE) else file.absolute()).parents[len(PLACE)]


def _listed(file: Path) -> CellRuns:
    """The runs of a list of an experiment, which must exist."""
    names = dict(zip(IDS, file.absolute().parts[-len(IDS) - 1 : -1], strict=True))
    return CellRuns(names, {one.seed: one.run for one in runs_of_list(file)})


def _by_configuration(runs: Sequence[RunDirectory]) -> CellRuns:
    by_seed = {run.config.seed: run for run in runs}
    config = runs[0].config
    labels = (config.dataset.label, config.partition.label, config.participation.label(config.partition.clients))
    names = dict(zip(IDS, (*labels, config.method.recipe.name), strict=True))
    return CellRuns(names, dict(sorted(by_seed.items())))
