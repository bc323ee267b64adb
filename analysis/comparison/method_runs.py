"""The finished runs of one method, whichever experiment they belong to.

Where the experiment's file is known, runs must be of its configuration; elsewhere they must be of one tuning.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.comparison.baselines import finished_run, train_command
from analysis.report.report import Report
from bench.experiments.address import CellAddress
from bench.experiments.experiment import experiment_file
from bench.experiments.results import ResultPaths
from bench.input.errors import UserError, unknown
from bench.methods.catalog import CATALOG
from bench.training.run_directory import RunDirectory, first_difference

MethodRun = tuple[RunDirectory, dict[str, str]]
"""A finished run, and the id columns of its cell."""

Found = dict[tuple[str, str], list[tuple[CellAddress, Path]]]
"""Finished run directories, each with its cell, by experiment (custom/NAME for runs with overrides) and method."""


def find_runs(
    method: str, experiment: str | None, results: Path, changes: Mapping[str, Any]
) -> tuple[str, list[MethodRun]]:
    """The experiment, and the finished runs of the method with the ids of their cells."""
    found = _found(results)
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
            run = finished_run(report.paths.run(experiment.name, cell.path, config.seed), config)
            if run is not None:
                runs.append((run, cell.address.columns))
    if not runs:
        raise UserError(
            f"no finished run of {method} of experiment {experiment.name} under '{report.results}'; "
            f"make them with: {train_command(report)}"
        )
    return experiment.name, runs


def _unchecked(method: str, experiment: str, found: Found) -> list[MethodRun]:
    """The runs of an experiment whose file is not known: they must at least be of one method and one tuning."""
    if (experiment, method) not in found:
        labels = sorted(label for name, label in found if name == experiment)
        raise unknown(f"method with runs of experiment {experiment}", method, labels)
    runs = [(RunDirectory(folder), cell.columns) for cell, folder in found[experiment, method]]
    first, _ = runs[0]
    free = {"dataset", "partition", "participation", "seed", "evaluation"}
    for run, _ in runs[1:]:
        alike = run.config.model_copy(update={name: getattr(first.config, name) for name in free})
        why = first_difference(alike, first.config)
        if why is not None:
            raise UserError(f"'{run.path}' and '{first.path}' are of different configurations ({why}, in the second)")
    return runs


def _only_experiment(method: str, found: Found, results: Path) -> str:
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


def _found(results: Path) -> Found:
    found: Found = {}
    for experiment, cell, folder in ResultPaths(results).finished_runs():
        found.setdefault((experiment, cell.method), []).append((cell, folder))
    return found


def some(names: Sequence[str]) -> str:
    """The first few of many names, and how many are left."""
    shown = 6
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
