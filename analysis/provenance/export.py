"""Exports targets of Snakemake as one archive, from which their tables and figures are rendered without training.

results/        lists, what is rendered from them, and the store: configuration, metrics, partition, provenance, the
                log's events and analyses of each run; on request also models and states
experiment/     the files that define the experiment, its analyses, tables and figures

Tables and figures are rendered from the files of the archive alone, so the archive is known to be complete.
"""

import datetime
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedflat.analysis.analyses.found_runs import runs_of_list
from fedflat.analysis.analyses.pictures import FOLDER
from fedflat.analysis.analyses.stored import COLUMNS, copy_of_code
from fedflat.analysis.planning.targets import (
    ExplorerPage,
    ReportOnTuning,
    StudyReport,
    Target,
    TunedFile,
    experiments_with,
    find_targets,
    named_in,
)
from fedflat.analysis.provenance.archive import write_archive
from fedflat.analysis.provenance.crate import METADATA, README, REQUIREMENTS, Contents, metadata, readme, requirements
from fedflat.analysis.provenance.run_log import events
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.files import PAPER_TABLES, experiment_files, experiment_names
from fedflat.bench.experiments.results import PARTITION, RUNS, ResultPaths
from fedflat.bench.experiments.run_config import USER_FILES
from fedflat.bench.files.atomic import write_text
from fedflat.bench.files.csv_json import sum_file
from fedflat.bench.files.lists import read_list
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.directories.run_files import readers
from fedflat.bench.training.run_directory import CONFIG, FINAL, LOG, SNAPSHOTS, RunDirectory

RESULTS, EXPERIMENT, REPORTS = "results", "experiment", "results/reports"
"""The folders of an archive."""

REPOSITORY = PAPER_TABLES.parent

DEFINITIONS = ("analyses.yaml", "claims.yaml", "tables/*.yaml", "figures/*.yaml")
"""The files next to an experiment's file that belong to it."""


def export(
    names: Sequence[str],
    archive: Path,
    results: Path,
    overrides: Mapping[str, Any],
    sources: Sequence[str] = (),
    *,
    models: bool = False,
    reports: bool = True,
) -> Contents:
    """Write the archive of targets, such as quick_table_accuracy or mine.yaml; `sources` as for `experiments_with`.

    Without `reports`, the rendered tables and figures are left out. A `UserError` if a target is unknown, or if one of
    its files is missing or damaged.
    """
    names, sources = named_in(names, sources)
    name = " ".join(names)
    targets = find_targets(names, experiments_with(results, overrides, sources))
    if any(isinstance(target, StudyReport | ReportOnTuning) for target in targets):
        raise UserError(f"{name}: reports are not exported (allowed: runs, analyses, tables, figures, pages)")
    if any(isinstance(target, TunedFile) for target in targets):
        raise UserError(f"{name}: trials are not exported (allowed: runs, analyses, tables, figures, pages)")
    for target in targets:
        if isinstance(target, ExplorerPage):
            file = target.outputs()[0]
            raise UserError(f"{name}: an interactive page is one file that needs no archive: pass on '{file}'")
    tidy = _tidy_files(names, targets, results)
    _check_tidy_files(tidy, targets, results)
    lists = [*dict.fromkeys(file for one in tidy if (file := _list_of_runs(one, results)).is_file())]
    listed = {one.place: one for file in lists for one in runs_of_list(file)}
    runs = [one.run for one in listed.values()]
    files = {_below(results, file): file for run in runs for file in _intact_files(run, models=models)}
    rendered_from = {**tidy, **{file: file for file in (*lists, *_listed_files(tidy, results))}}
    rendered_from |= {file: file for run in runs for file in readers(run, models=False)}
    given = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    about = dict.fromkeys(target.requested.experiment.description for target in targets)
    with tempfile.TemporaryDirectory(prefix="fedflat-export-") as folder:
        stage = Path(folder)
        for file, content in rendered_from.items():
            _copy(content, stage / _below(results, file))
        for log in (run.path / LOG for run in runs):
            if log.is_file():
                write_text(stage / _below(results, log), events(log.read_text(encoding="utf-8")))
        copies = _copy_definitions([target.requested for target in targets], stage / EXPERIMENT)
        own = [str(copies[file]) for file in (Path(source).resolve() for source in sources) if file in copies]
        staged = find_targets(names, experiments_with(stage / RESULTS, overrides, own))
        _check_complete(staged, stage)
        for target in staged:
            target.render()
        contents = Contents(
            target=name,
            description=" ".join([*about, *([f"With {', '.join(given)}."] if given else [])]),
            runs={_below(results, run.path): run for run in runs},
            ended=max([_ended(run) for run in runs] or [_time(file) for file in tidy.values()]),
            commands=[[_relative(word, stage) for word in words] for target in staged for words in target.commands()],
            options=["--results", RESULTS, *(f"--set={one}" for one in given)],
            models=sum(Path(name).name == FINAL for name in files),
            states=sum(Path(name).parent.name == SNAPSHOTS for name in files),
            has_reports=reports,
            has_own_experiment=any(target.requested.name_or_file not in experiment_names() for target in staged),
        )
        if not reports:
            shutil.rmtree(stage / REPORTS, ignore_errors=True)  # runs have none
        (stage / README).write_text(readme(contents), encoding="utf-8")
        (stage / REQUIREMENTS).write_text(requirements(), encoding="utf-8")
        files |= {file.relative_to(stage).as_posix(): file for file in stage.rglob("*") if file.is_file()}
        (stage / METADATA).write_text(metadata(contents, files), encoding="utf-8")
        write_archive(archive, {**files, METADATA: stage / METADATA})
    return contents


def _below(results: Path, file: Path) -> str:
    """The path in the archive of a file in the folder of results."""
    return f"{RESULTS}/{file.relative_to(results).as_posix()}"


def _relative(word: str, folder: Path) -> str:
    """A path without the folder; other words as they are."""
    return word.removeprefix(f"{folder}/")


def _copy(file: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
    if (sums := sum_file(file)).is_file():
        shutil.copyfile(sums, sum_file(copy))


def _tidy_files(names: Sequence[str], targets: Iterable[Target], results: Path) -> dict[Path, Path]:
    """The lists and splits that targets need, each with the file that has its content; a `UserError` if one is missing.

    A split that was not drawn without training is that of the run.
    """
    wanted = list(dict.fromkeys(file for target in targets for file in target.inputs() if results in file.parents))
    experiments = {target.requested.experiment.name: target.requested.experiment for target in targets}
    found = {file: file if file.is_file() else _of_run(file, experiments, results) for file in wanted}
    missing = [str(file) for file, content in found.items() if not content.is_file()]
    if missing:
        command = next(iter(targets)).requested.snakemake(*names)
        raise UserError(
            f"{len(missing)} of {len(wanted)} files of {' '.join(names)} are missing, such as '{missing[0]}'; compute "
            f"them with: {command}"
        )
    return found


def _of_run(file: Path, experiments: Mapping[str, Experiment], results: Path) -> Path:
    """The split of a run in place of one that was drawn without training; for other files, the file itself."""
    paths = ResultPaths(results)
    name, cell = paths.cell_of(file) or ("", None)
    if file.name != PARTITION or cell is None or name not in experiments:
        return file
    seed = int(file.parent.name.removeprefix("seed-"))
    return paths.run(experiments[name].cell(cell.path).runs[0].with_seed(seed)) / PARTITION


def _check_tidy_files(files: Iterable[Path], targets: Iterable[Target], results: Path) -> None:
    """A `UserError` if a file is damaged, or of other runs than those of its experiment, as for a table."""
    tidy = {target.requested.experiment.name: target.requested.tidy for target in targets}
    for file in files:
        experiment, cell = ResultPaths(results).cell_of(file) or (None, None)
        if experiment in tidy and cell is not None:
            kind = {f"{RUNS}.csv": "metrics", PARTITION: "partition"}.get(file.name, file.stem)
            seed = int(file.parent.name.removeprefix("seed-")) if file.name == PARTITION else 0
            tidy[experiment].gather(kind, [cell], seed)


def _list_of_runs(file: Path, results: Path) -> Path:
    """The list of the runs of the cell to which a list or a split belongs."""
    paths = ResultPaths(results)
    experiment, cell = paths.cell_of(file) or ("", None)
    return file if cell is None else paths.runs(experiment, cell.path)


def _listed_files(tidy: Iterable[Path], results: Path) -> Iterator[Path]:
    """The files that lists of analyses name, pictures next to them, and copies of users' files that computed them."""
    for file in tidy:
        if file.name not in (f"{RUNS}.csv", PARTITION) and ResultPaths(results).cell_of(file) is not None:
            for row in read_list(file, COLUMNS, ""):
                listed = results / row["path"]
                yield from (one for one in (listed, copy_of_code(listed)) if one == listed or one.is_file())
                yield from listed.parent.glob(f"{FOLDER}/*.png")


def _intact_files(run: RunDirectory, *, models: bool) -> list[Path]:
    """The files of a run, which are read; a `DamagedFileError` if one is damaged."""
    found = readers(run, models=models)
    for read in found.values():
        read()
    return list(found)


def _ended(run: RunDirectory) -> str:
    """When a run ended; for a run of an earlier version, when its configuration was written."""
    return str(run.provenance.get("ended", _time(run.path / CONFIG)))


def _time(file: Path) -> str:
    return datetime.datetime.fromtimestamp(file.stat().st_mtime, tz=datetime.UTC).isoformat(timespec="seconds")


def _copy_definitions(experiments: Sequence[RequestedExperiment], folder: Path) -> dict[Path, Path]:
    """Copy the files that define experiments; the path of each copy by the path of the file."""
    chains = [file.resolve() for one in experiments for file in experiment_files(one.name_or_file)]
    outside = [str(file.parent) for file in chains if not file.is_relative_to(REPOSITORY)]
    base = Path(os.path.commonpath(outside)) if outside else REPOSITORY
    files = [
        file for one in chains for file in (one, *(below for part in DEFINITIONS for below in one.parent.glob(part)))
    ]
    files += [file.resolve() for one in experiments for file in _user_files(one)]
    copies: dict[Path, Path] = {}
    for file in dict.fromkeys(files):
        root = next((root for root in (REPOSITORY, base) if file.is_relative_to(root)), None)
        if root is not None:
            copies[file] = folder / file.relative_to(root)
            _copy(file, copies[file])
    return copies


def _user_files(requested: RequestedExperiment) -> Iterator[Path]:
    """The files that the configurations of a user's own experiment name; images, and modules, are not among them."""
    if requested.name_or_file in experiment_names():
        return
    yield from (one.file for one in requested.experiment.analyses or () if one.file is not None and one.module is None)
    for cell in requested.experiment.cells().values():
        config = cell.runs[0].model_dump()
        yield from _named_files({key: value for key, value in config.items() if key in USER_FILES})


def _named_files(section: Mapping[str, Any]) -> Iterator[Path]:
    for key, value in section.items():
        for inner in value if isinstance(value, list | tuple) else (value,):
            if isinstance(inner, Mapping):
                yield from _named_files(inner)
        if isinstance(value, Mapping | list | tuple):
            continue
        if key == "file" and value is not None and section.get("module") is None:
            yield Path(value)


def _check_complete(targets: Iterable[Target], stage: Path) -> None:
    """A `UserError` if the copy of an experiment names a file that was not copied with it."""
    for target in targets:
        for file in _user_files(target.requested):
            if not file.resolve().is_relative_to(stage.resolve()):
                raise UserError(
                    f"'{file}' cannot be exported: put it into the folder of the experiment's file, and give its "
                    "relative path"
                )
