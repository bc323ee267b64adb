"""The finished runs of one method, whichever experiment they belong to.

Where the experiment's file is known, runs must be of its configuration; elsewhere they must be of one tuning.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.comparison.baselines import finished_run, train_command
from analysis.report.report import Report
from bench.experiments.columns import IDS
from bench.experiments.experiment import experiment_file
from bench.input.errors import UserError, unknown
from bench.methods.catalog import CATALOG
from bench.training.run_directory import RunDirectory, first_difference

MethodRun = tuple[RunDirectory, dict[str, str]]
"""A finished run, and the id columns of its cell."""


def find_runs(
    method: str, experiment: str | None, results: Path, changes: Mapping[str, Any]
) -> tuple[str, list[MethodRun]]:
    """The experiment, and the finished runs of the method with the ids of their cells."""
    found = _run_folders(results)
    if experiment is None:
        experiment = _only_experiment(method, found, results)
    try:
        experiment_file(experiment)
    except UserError:
        if not any(name == experiment for name, _ in found):
            raise
        return experiment, _unchecked(method, experiment, found)
    return _of_experiment(method, Report(experiment, results, changes))


def _of_experiment(method: str, report: Report) -> tuple[str, list[MethodRun]]:
    """The runs of an experiment whose file is known: those of another configuration are refused."""
    experiment = report.experiment
    if method not in experiment.methods:
        raise unknown(f"method of experiment {experiment.name}", method, experiment.methods)
    runs = []
    for setting in experiment.settings():
        cell = experiment.cell(f"{setting}/{method}")
        for config in cell.runs:
            place = report.results / "runs" / experiment.name / cell.path / f"seed-{config.seed}"
            run = finished_run(place, config)
            if run is not None:
                runs.append((run, cell.ids()))
    if not runs:
        raise UserError(
            f"no finished run of {method} of experiment {experiment.name} under '{report.results}'; "
            f"make them with: {train_command(report)}"
        )
    return experiment.name, runs


def _unchecked(method: str, experiment: str, found: Mapping[tuple[str, str], Sequence[Path]]) -> list[MethodRun]:
    """The runs of an experiment whose file is not known: they must at least be of one method and one tuning."""
    if (experiment, method) not in found:
        labels = sorted(label for name, label in found if name == experiment)
        raise unknown(f"method with runs of experiment {experiment}", method, labels)
    runs = [RunDirectory(folder) for folder in found[experiment, method]]
    first = runs[0]
    free = {"dataset", "partition", "participation", "seed", "evaluation"}
    for run in runs[1:]:
        alike = run.config.model_copy(update={name: getattr(first.config, name) for name in free})
        why = first_difference(alike, first.config)
        if why is not None:
            raise UserError(f"'{run.path}' and '{first.path}' are of different configurations ({why}, in the second)")
    return [(run, dict(zip(IDS, run.path.parts[-5:-1], strict=True))) for run in runs]


def _only_experiment(method: str, found: Mapping[tuple[str, str], Sequence[Path]], results: Path) -> str:
    """The one experiment that has runs of the method."""
    experiments = sorted(name for name, label in found if label == method)
    if len(experiments) > 1:
        raise UserError(f"{method} has runs in several experiments: choose one with --experiment ({some(experiments)})")
    if experiments:
        return experiments[0]
    if found and method not in CATALOG:
        raise unknown(f"method with runs under '{results}'", method, {label for _, label in found})
    raise UserError(
        f"no finished run of {method} under '{results}'; train it with: fedflat run EXPERIMENT CELL, "
        "or give the file of its experiment with --experiment"
    )


def _run_folders(results: Path) -> dict[tuple[str, str], list[Path]]:
    """All finished run directories by experiment and method; those of changed values are of custom/EXPERIMENT."""
    runs = results / "runs"
    found = defaultdict(list)
    for depth in ("*", "custom/*"):
        for file in sorted(runs.glob(f"{depth}/*/*/*/*/seed-*/config.json")):
            folder = file.parent
            if folder.name.removeprefix("seed-").isdigit():
                found["/".join(folder.relative_to(runs).parts[:-5]), folder.parent.name].append(folder)
    return dict(found)


def some(names: Sequence[str]) -> str:
    """The first few of many names, and how many are left."""
    shown = 6
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
