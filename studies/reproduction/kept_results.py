"""Results that are kept with the code: unpacked archives of `fedflat export` with final models, but without states.

results/reproductions/EXPERIMENT/            the archive, without rendered tables and figures

`python -m studies.reproduction.kept_results keep EXPERIMENT RESULTS [TARGET ...]` replaces it by the results
below the folder RESULTS. Without targets, everything that the experiment shows must be computed, and its claims.

`python -m studies.reproduction.kept_results restore EXPERIMENT RESULTS` copies the kept runs, models and
analyses to RESULTS, so that models can be analysed, and further methods trained there, and kept too.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedflat.analysis.analyses.found_runs import runs_of_list
from fedflat.analysis.provenance.archive import unpack
from fedflat.analysis.provenance.export import RESULTS, export
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import own_experiment
from fedflat.bench.experiments.files import experiment_names
from fedflat.bench.experiments.results import STORE, ResultPaths
from fedflat.bench.files.atomic import replacing
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import CONFIG, LOCAL_MODELS, LOG, PROVENANCE, SNAPSHOTS, RunDirectory
from studies.command import run
from studies.places import CLONE

KEPT = CLONE / "results" / "reproductions"


def keep(experiment: str, results: Path, targets: Sequence[str]) -> None:
    """Replace the kept results by those of the finished methods in the folder `results`.

    `experiment`: a name, or a file. A `UserError` if a file of a target, a log, or a file that is kept already is
    missing in `results`; then nothing is replaced.
    """
    requested = finished(experiment, results)
    name, folder = requested.target, KEPT / requested.target
    new, old = (folder.with_name(f".{name}.{which}") for which in ("new", "old"))  # the swap is two renames
    if old.exists() and not folder.exists():
        old.rename(folder)  # a swap was interrupted between them
    own = [] if experiment in experiment_names() else [experiment]
    with tempfile.TemporaryDirectory() as temporary:
        archive, copy = Path(temporary) / "results.zip", Path(temporary) / RESULTS
        for below in _folders(requested.experiment.name, results):
            shutil.copytree(results / below, copy / below, ignore=shutil.ignore_patterns(".*"))
        for _, run in runs_of(requested):
            place = copy / run.path.relative_to(results)
            shutil.copytree(run.path, place, ignore=shutil.ignore_patterns(SNAPSHOTS, LOCAL_MODELS, ".*"))
        for _, run in runs_of(RequestedExperiment(experiment, copy, requested.overrides)):
            if not (run.path / LOG).is_file():
                raise UserError(f"'{results / run.path.relative_to(copy) / LOG}' is missing; nothing was replaced")
            config = _with_relative_paths(read_checked_json(run.path / CONFIG, run.remedy))
            write_checked_json(run.path / CONFIG, config)
        names = targets or [name, f"{name}_claims"]
        export(names, archive, copy, requested.overrides, own, models=True, reports=False)
        shutil.rmtree(new, ignore_errors=True)
        unpack(archive, new)
    try:
        _check_nothing_is_lost(folder / RESULTS, new / RESULTS)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _check_nothing_is_lost(before: Path, after: Path) -> None:
    """A `UserError` if a file of the kept results is not among those that shall replace them."""
    for file in _files(before):
        if not (after / file).is_file():
            raise UserError(
                f"'{file}' is kept, but is missing in the results or not shown by the targets: restore it to the "
                f"results, name a target that shows it, or delete '{before.parent}'; nothing was replaced"
            )


def restore(experiment: str, results: Path) -> int:
    """Copy the kept runs, with logs and final models, and their analyses to `results`; return the number of new files.

    Files that are there stay. The files by which a run counts as finished are written after its others, and lists at
    last, so that an interrupted copy is not taken for a whole one. A `UserError` if nothing is kept of the experiment,
    or if `results` has another run of the same configuration; then nothing is copied.
    """
    there = kept(experiment)
    if not _folders(there.experiment.name, there.results):
        names = ", ".join(sorted(folder.name for folder in KEPT.glob("[!.]*")))
        raise UserError(f"no results of '{experiment}' are kept (allowed: {names})")
    files = sorted(_files(there.results), key=_place_in_copy)
    for file in files:
        if file.name == PROVENANCE and (results / file).exists():
            _check_same(results / file, there.results / file)
    new = [file for file in files if not (results / file).exists()]
    for file in new:
        with replacing(results / file) as copy:
            shutil.copyfile(there.results / file, copy)
    return len(new)


def _place_in_copy(file: Path) -> int:
    """1 for the file by which a run counts as finished, 2 for lists, 0 for others."""
    return 1 if file.name == CONFIG else 2 * (STORE not in file.parts)


def _check_same(here: Path, there: Path) -> None:
    """A `UserError` if the provenance of a run in the results is not that of the kept run."""
    if here.read_bytes() != there.read_bytes():
        raise UserError(
            f"'{here.parent}' is another run than the one that is kept: move it away, or name another folder; nothing "
            "was copied"
        )


def _files(results: Path) -> list[Path]:
    """The files in a folder of results, relative to it."""
    return [file.relative_to(results) for file in sorted(results.rglob("*")) if file.is_file()]


def _folders(experiment: str, results: Path) -> list[Path]:
    """The folders with the lists and the splits of an experiment, relative to that of all results."""
    paths = ResultPaths()
    folders = [paths.lists(experiment), paths.splits(experiment)]
    return [below for one in folders if (results / (below := one.relative_to(paths.root))).is_dir()]


def _with_relative_paths(value: Any) -> Any:
    """A configuration without the folders of the machine: paths are relative to the repository where it has the file.

    The identity of a run depends on the contents of its files, not on their paths.
    """
    if isinstance(value, dict):
        return {key: _with_relative_paths(one) for key, one in value.items()}
    if not isinstance(value, str) or not Path(value).is_absolute():
        return value
    parts = Path(value).parts[1:]
    tails = (Path(*parts[start:]) for start in range(len(parts)))
    return next((tail.as_posix() for tail in tails if (CLONE / tail).exists()), Path(value).name)


def kept(experiment: str) -> RequestedExperiment:
    """The experiment with the kept results, and with the methods that have some; `experiment`: a name, or a file."""
    return finished(experiment, KEPT / RequestedExperiment(experiment, KEPT).target / RESULTS)


def finished(experiment: str, results: Path) -> RequestedExperiment:
    """The experiment with the results in a folder, and with the methods whose runs are finished in all settings."""
    own, paths = own_experiment(experiment), ResultPaths(results)
    missing = {one.method for one in own.addresses if not paths.runs(own.name, one.path).is_file()}
    methods = [label for label in own.methods if label not in missing]
    return RequestedExperiment(experiment, results, {} if not missing else {"chosen": methods})


def runs_of(requested: RequestedExperiment) -> Iterator[tuple[CellAddress, RunDirectory]]:
    """The finished runs, each with its cell."""
    for cell in requested.experiment.addresses:
        for one in runs_of_list(requested.paths.runs(requested.experiment.name, cell.path)):
            yield cell, one.run


def main(words: Sequence[str]) -> None:
    """Keep or restore results, as the first word says."""
    match words:
        case ["keep", name, folder, *targets]:
            keep(name, Path(folder), targets)
        case ["restore", name, folder]:
            print(f"{restore(name, Path(folder))} new files in '{folder}'")
        case _:
            raise UserError("allowed: keep NAME FOLDER TARGET ..., or restore NAME FOLDER")


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
