"""Results that are kept with the code: an unpacked archive of `fedflat export`, and what the logs of its runs record.

results/reproductions/EXPERIMENT/            the archive, without rendered tables and figures
results/reproductions/EXPERIMENT/logs/       of each run: when it was started, resumed and finished
results/reproductions/EXPERIMENT/models/     of each run whose final model is stored: that model

`python -m analysis.provenance.kept_results keep EXPERIMENT RESULTS [TARGET ...]` replaces them by those below the
folder RESULTS. Without targets, everything that the experiment shows must be computed, and its claims.

`python -m analysis.provenance.kept_results restore EXPERIMENT RESULTS` copies the kept runs, models and analyses to
RESULTS, so that models can be analysed, and further methods trained there, and kept too.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.analyses.run_analysis import find_runs
from analysis.provenance.archive import unpack
from analysis.provenance.export import REPOSITORY, RESULTS, export
from analysis.report.requested import RequestedExperiment
from bench.experiments.address import CellAddress
from bench.experiments.experiment import own_experiment
from bench.experiments.files import experiment_names
from bench.experiments.results import METRICS, ResultPaths
from bench.files.atomic import write_text
from bench.files.csv_json import read_checked_json, write_checked_json
from bench.input.errors import UserError
from bench.training.run_directory import CONFIG, FINAL, LOG, RunDirectory

KEPT, LOGS, MODELS = REPOSITORY / "results" / "reproductions", "logs", "models"

_EVENTS = (
    r"started\b",
    r"resumed after round \d+$",
    r"engine: [^';\n]+$",  # not those that name files of the machine
    r"round (?P<last>\d+) of (?P=last)\b.*$",
    r"(?:finished|diverged|stopped) after round \d+.*$",
)
EVENT = re.compile(rf"^(\S+ \S+?)(?:,\d+)? ({'|'.join(_EVENTS)})", re.MULTILINE)
"""The lines of a run's log that are kept, with the time to the second: start, engine, resumptions, last round and end.

Of a kept log, it finds all lines.
"""

KINDS = ("runs", "analysis", "partitions")
"""The folders of results that are kept, below each that of the experiment."""


def keep(experiment: str, results: Path, targets: Sequence[str]) -> None:
    """Replace the kept results by those of the finished methods in the folder `results`.

    `experiment`: a name, or a file. A `UserError` if a file of a target is missing; then nothing is replaced.
    """
    requested = finished(experiment, results)
    name, folder = requested.target, KEPT / requested.target
    own = [] if experiment in experiment_names() else [experiment]
    with tempfile.TemporaryDirectory() as temporary:
        archive, copy = Path(temporary) / "results.zip", Path(temporary) / RESULTS
        unfinished = shutil.ignore_patterns("*.safetensors", "*.partial-*", ".*")  # training may continue meanwhile
        for below in _folders(requested.experiment.name, results):
            shutil.copytree(results / below, copy / below, ignore=unfinished)
        for _, run in runs_of(RequestedExperiment(experiment, copy, requested.overrides)):
            config = _with_relative_paths(read_checked_json(run.path / CONFIG, run.remedy))
            write_checked_json(run.path / CONFIG, config)
        export(targets or [name, f"{name}_claims"], archive, copy, requested.overrides, own, reports=False)
        shutil.rmtree(folder, ignore_errors=True)
        unpack(archive, folder)
    for cell, run in runs_of(requested):
        text = (run.path / LOG).read_text(encoding="utf-8")
        lines = [f"{time} {event}\n" for time, event, _ in EVENT.findall(text)]
        file = log_of(folder, cell, run)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, "".join(lines))
        _copy_if_missing(run.path / FINAL, model_of(folder, cell, run))


def restore(experiment: str, results: Path) -> None:
    """Copy the kept runs, with logs and final models, and their analyses to `results`; files that are there stay."""
    there = kept(experiment)
    for below in _folders(there.experiment.name, there.results):
        for file in (there.results / below).rglob("*"):
            _copy_if_missing(file, results / file.relative_to(there.results))
    for cell, run in runs_of(there):
        folder, copy = KEPT / there.target, results / run.path.relative_to(there.results)
        _copy_if_missing(log_of(folder, cell, run), copy / LOG)
        _copy_if_missing(model_of(folder, cell, run), copy / FINAL)


def _folders(experiment: str, results: Path) -> list[Path]:
    """The folders of an experiment that are kept, relative to that of all results."""
    return [Path(kind) / experiment for kind in KINDS if (results / kind / experiment).is_dir()]


def _copy_if_missing(file: Path, copy: Path) -> None:
    if file.is_file() and not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


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
    return next((tail.as_posix() for tail in tails if (REPOSITORY / tail).exists()), Path(value).name)


def kept(experiment: str) -> RequestedExperiment:
    """The experiment with the kept results, and with the methods that have some; `experiment`: a name, or a file."""
    return finished(experiment, KEPT / RequestedExperiment(experiment, KEPT).target / RESULTS)


def finished(experiment: str, results: Path) -> RequestedExperiment:
    """The experiment with the results in a folder, and with the methods whose runs are finished in all settings."""
    own, paths = own_experiment(experiment), ResultPaths(results)
    missing = {one.method for one in own.addresses if not (paths.cell(own.name, one.path) / METRICS).is_file()}
    methods = [label for label in own.methods if label not in missing]
    return RequestedExperiment(experiment, results, {} if not missing else {"chosen": methods})


def runs_of(requested: RequestedExperiment) -> Iterator[tuple[CellAddress, RunDirectory]]:
    """The finished runs, each with its cell."""
    for cell in requested.experiment.addresses:
        for run in find_runs(requested.paths.cell(requested.experiment.name, cell.path)).by_seed.values():
            yield cell, run


def log_of(folder: Path, cell: CellAddress, run: RunDirectory) -> Path:
    """The kept log of a run; `folder`: that of the kept results."""
    return folder / LOGS / cell.path / f"{run.path.name}.log"


def model_of(folder: Path, cell: CellAddress, run: RunDirectory) -> Path:
    """The kept final model of a run, if it has one; `folder`: that of the kept results."""
    return folder / MODELS / cell.path / f"{run.path.name}.safetensors"


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["keep", name, folder, *targets]:
                keep(name, Path(folder), targets)
            case ["restore", name, folder]:
                restore(name, Path(folder))
            case _:
                sys.exit(__doc__)
    except UserError as error:
        sys.exit(str(error))
