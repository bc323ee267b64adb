"""What the Snakefile asks: which experiments, which cells they have, and with which options `fedflat` is called."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.report.report import Report
from bench.experiments.experiment import Cell
from bench.experiments.files import experiment_names
from bench.experiments.overrides import CONFIG_KEYS, config_overrides
from bench.experiments.resolving import scaled_name
from bench.experiments.results import ResultPaths
from bench.host.device import device_name
from bench.input.errors import UserError, unknown
from bench.training.run_directory import is_finished

KEYS = sorted([*CONFIG_KEYS, "device", "experiments", "replace", "results", "threads"])
"""What `snakemake --config` takes."""


@dataclass(frozen=True)
class Workflow:
    """The experiments of one call of Snakemake: those that its configuration asks for, and all that have a name.

    `reports` by the experiments' names; what has not been asked for is not read until a target needs it.
    """

    results: Path
    device: str
    threads_asked: int | None
    replace: bool
    changes: Mapping[str, Any]
    asked: tuple[str, ...]
    reports: Mapping[str, Report]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Workflow":
        """From Snakemake's configuration; a `UserError` names a wrong key or value."""
        for key in config:
            if key not in KEYS:
                raise unknown("--config key", key, KEYS)
        changed = config_overrides(config)
        results, replace = config.get("results", "results"), str(config.get("replace", False)).lower()
        if not isinstance(results, str) or not results:
            raise UserError(f"--config results={results}: the name of a folder is needed")
        if replace not in ("true", "false"):
            raise UserError(f"--config replace={replace}: true or false")
        asked = config.get("threads")
        if asked is not None and (type(asked) is not int or asked < 1):
            raise UserError(f"--config threads={asked}: a whole number from 1 on")
        sources = config.get("experiments", ["quick"])
        sources = [sources] if isinstance(sources, str) else sources
        if not isinstance(sources, list) or not sources or not all(isinstance(s, str) for s in sources):
            raise UserError(f"--config experiments={sources}: a list such as [quick,my/experiments.yaml]")
        named = {
            scaled_name(name, changed.get("scale")): Report(name, Path(results), changed) for name in experiment_names()
        }
        device = device_name(str(config.get("device", "cpu")))
        reports: dict[str, Report] = {}
        for source in sources:
            report = Report(source, Path(results), changed)
            report.experiment.cells()  # a mistake in a grid is told before anything runs
            if report.experiment.name in reports:
                raise UserError(f"--config experiments: two of them are named {report.experiment.name}")
            reports[report.experiment.name] = report
        return cls(Path(results), device, asked, replace == "true", changed, tuple(reports), named | reports)

    def cell(self, experiment: str, path: str) -> Cell:
        """One cell of an experiment."""
        if (experiment, path) not in self._known:
            self._known[experiment, path] = self.reports[experiment].experiment.cell(path)
        return self._known[experiment, path]

    @cached_property
    def _known(self) -> dict[tuple[str, str], Cell]:
        return {}

    @property
    def paths(self) -> ResultPaths:
        """The paths of the results."""
        return ResultPaths(self.results)

    @property
    def options(self) -> str:
        """Options of every `fedflat` command, quoted for the shell."""
        changes = (f"--set={key}={value}" for key, value in self.changes.items())
        return shlex.join(["--results", str(self.results), *changes])

    @property
    def report_folder(self) -> str:
        """The folder of reports, with a wildcard for the experiment."""
        return str(self.paths.report("{experiment}", self.changes.get("report")))

    def description(self, experiment: str) -> str:
        """What an experiment says of itself."""
        return self.reports[experiment].experiment.description

    def threads(self, experiment: str, path: str, cores: int) -> int:
        """CPU threads of a job that trains or analyses a cell, of `cores` in all; one beside a GPU."""
        if self.threads_asked is not None:
            return self.threads_asked
        return 1 if self.device != "cpu" else self.cell(experiment, path).runs[0].model.threads(cores)

    def identity(self, experiment: str, path: str) -> str:
        """A cell's identity. Runs of another configuration in its place are told here, before anything is touched."""
        cell = self.cell(experiment, path)
        for run in cell.runs:
            is_finished(self.paths.run(experiment, cell.path, run.seed), run, replace=self.replace)
        return cell.identity

    def compared(self, experiment: str, path: str, analysis: str) -> list[str]:
        """The paths of the cells that an analysis of this cell compares it with."""
        return self.reports[experiment].compared(path, analysis)

    def trained(self, experiment: str) -> list[str]:
        """The paths of all cells of an experiment."""
        return self.reports[experiment].experiment.paths()

    def analysed(self, experiment: str, analysis: str) -> list[str]:
        """The paths of all cells of which an analysis can be asked; a `UserError` if it cannot be asked at all."""
        return self.reports[experiment].analysed(analysis)

    def shown(self, experiment: str, files: Iterable[Path]) -> str:
        """Which value of a run is reported, and the identities of the cells that a table or figure reads.

        They are a parameter of its rule: one that was made of other configurations is outdated even while the new runs
        are missing, as after a retraining that was killed.
        """
        cells = dict.fromkeys(map(self.paths.cell_of, files))
        identities = [self.cell(experiment, cell.path).identity for cell in cells if cell is not None]
        report = self.reports[experiment].experiment.report
        return " ".join([*([] if report is None else [report]), *identities])
