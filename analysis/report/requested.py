"""One experiment as a command or Snakemake requests it: its overrides, its analyses, and the folder of its results."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedflat.analysis.analyses import load_analyses
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.layouts.protocol import at_scale
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.files import experiment_file, experiment_files, experiment_names, is_named
from fedflat.bench.experiments.overrides import CONFIG_KEYS
from fedflat.bench.experiments.resolving import experiment_data
from fedflat.bench.experiments.results import ReportPaths, ResultPaths
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.methods.catalog import CATALOG


@dataclass(frozen=True)
class RequestedExperiment:
    """An experiment with its results below the folder `results`.

    `name_or_file` is the experiment's name or YAML file. `overrides` are values that replace those of the file, by key.
    `stored` as for `load_experiment`.
    """

    name_or_file: str
    results: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)
    stored: bool = False

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment with its overrides; a `UserError` if neither it nor a named experiment has a chosen method."""
        experiment = load_experiment(self.name_or_file, self.overrides, stored=self.stored)
        if experiment.chosen is not None:
            named = [method for method in experiment.chosen if method not in experiment.methods]
            _check_methods(named, dict.fromkeys([self.name_or_file, *experiment_names()]))
        return experiment

    @cached_property
    def analyses(self) -> dict[str, Analysis]:
        """Every analysis by name, with the experiment's options, adapted to its scale."""
        partitions = [setting.partition for setting in self.experiment.settings]
        own = self.experiment.analyses or ()
        analyses = load_analyses(self.name_or_file, {*self.experiment.methods, *partitions}, own)
        return {name: at_scale(analysis, self.experiment) for name, analysis in analyses.items()}

    @property
    def analysis_names(self) -> list[str]:
        """The names of all analyses; the experiment itself is read only if it names some of the user's own."""
        has_own = experiment_data(self.name_or_file).get("analyses")
        return list(self.analyses if has_own else load_analyses(self.name_or_file))

    @property
    def target(self) -> str:
        """The beginning of its Snakemake targets: the experiment's name, without the scale."""
        if is_named(self.name_or_file):
            return self.name_or_file
        data = experiment_data(self.name_or_file)
        if "name" not in data:
            raise UserError(f"'{self.name_or_file}' has no `name` (required: a line such as `name: mine`)")
        return str(data["name"])

    @property
    def is_paper(self) -> bool:
        """Whether it is the experiment of a paper, with published numbers in the same folder."""
        return experiment_file(self.name_or_file).with_name("published").is_dir()

    @property
    def paper(self) -> str:
        """The paper whose published numbers are shown: that of the experiment, or of an experiment that it extends."""
        folders = [file.parent for file in experiment_files(self.name_or_file)]
        return next((folder.name for folder in folders if (folder / "published").is_dir()), self.target)

    @property
    def paths(self) -> ResultPaths:
        """The paths of the results."""
        return ResultPaths(self.results)

    @property
    def report_paths(self) -> ReportPaths:
        """The paths of its report; a separate one if the override `report` requests another value of a run."""
        return self.paths.report(self.experiment.name, self.overrides.get("report"))

    def of_paper(self, paper: str) -> "RequestedExperiment":
        """Another paper's experiment, with the values that `--config` sets for all experiments."""
        shared = {key: value for key, value in self.overrides.items() if key in CONFIG_KEYS.values()}
        return RequestedExperiment(paper, self.results, shared)

    @cached_property
    def tidy(self) -> Tidy:
        """The tidy files of the experiment."""
        return Tidy(self.results, self.experiment, self.analyses, self.write_again)

    def write_again(self, file: Path) -> str:
        """What to do about a damaged tidy file: the command that writes it again, in words."""
        return f"write it again with: {self.snakemake('--force', str(file))}"

    def compared(self, path: str, analysis: str) -> list[str]:
        """The paths of the cells with which an analysis compares the cell at `path`."""
        cell = CellAddress.of(path)
        return [self.experiment.compared_cell(cell, label).path for label in self.analyses[analysis].compared_labels()]

    def analysed(self, analysis: str) -> list[str]:
        """The paths of all cells to which an analysis applies; a `UserError` if no setting allows it."""
        if analysis not in self.analyses:
            raise unknown(f"analysis of experiment {self.experiment.name}", analysis, self.analyses)
        requested = self.analyses[analysis]
        settings, reasons = set(), []
        for setting in self.experiment.settings:
            try:
                requested.check_data(self.experiment.data_in(setting))
                requested.check(self.experiment.evaluation_in(setting))
                settings.add(setting)
            except UserError as error:
                reasons.append(error)
        if not settings:
            raise reasons[0]
        cells = self.experiment.addresses
        return [
            cell.path
            for cell in cells
            if cell.setting in settings and requested.applies_to(cell.method, cell.setting.partition)
        ]

    def check_runs(self, target: str) -> None:
        """A `UserError` if nothing has been trained; it names the command that produces the target."""
        if not self.experiment.addresses:
            raise UserError(f"experiment {self.experiment.name} has none of the methods {self.chosen_methods}")
        if not self.tidy.has_runs():
            raise UserError(
                f"no run of experiment {self.experiment.name} under '{self.results}'; "
                f"train them with: {self.snakemake(target)}"
            )

    @property
    def chosen_methods(self) -> str:
        """The chosen methods, for messages; empty if all methods are requested."""
        return ", ".join(self.experiment.chosen or ())

    def snakemake(self, *targets: str) -> str:
        """The command that produces targets of the Snakefile; options with their default value are left out."""
        short = {overridden: key for key, overridden in CONFIG_KEYS.items()}
        config = [f"{short[key]}={value}" for key, value in self.overrides.items() if key in short]
        if self.results != Path("results"):
            config.insert(0, f"results={self.results}")
        if not is_named(self.name_or_file):
            config.insert(0, f"experiments=[{self.name_or_file}]")
        command = shlex.join(["snakemake", "--cores", "2", *targets, *(["--config", *config] if config else [])])
        others = [key for key in self.overrides if key not in short]
        return command + (f" (with {', '.join(others)} set in the experiment's file)" if others else "")


def _check_methods(chosen: Iterable[str], experiments: Iterable[str]) -> None:
    """A `UserError` if a chosen method is neither in one of these valid experiments nor in the catalog."""
    known = {label for name in experiments for label in _labels(experiment_data(name))}.union(CATALOG)
    for method in chosen:
        if method not in known:
            raise unknown("method", method, known)


def _labels(data: Mapping[str, Any]) -> set[str]:
    """The labels of the methods of an experiment and its parts."""
    sections = [data, *(data.get("parts") or {}).values()]
    return {label for section in sections for label in (section or {}).get("methods") or {}}
