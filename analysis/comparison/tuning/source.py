"""What a report on tuning reads: stored baselines and trials of a grid, or runs and trials of an experiment."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from fedflat.analysis.comparison.baselines import folder_of, load
from fedflat.analysis.comparison.comparable import check_comparable
from fedflat.analysis.comparison.run_table import TUNED, run_table
from fedflat.analysis.comparison.study.source import StudySource
from fedflat.analysis.comparison.tuning.budget import RanksByBudget
from fedflat.analysis.comparison.tuning.early_stopping import EarlyStopping
from fedflat.analysis.comparison.tuning.gain import Gain
from fedflat.analysis.comparison.tuning.trials import collect, file_of, load_trials
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.installed import RUNS
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.input.errors import UserError


@dataclass(frozen=True)
class TuningSource(StudySource):
    """Also the experiment with tuned values: the file `tuned`, or None: the one that `fedflat tune` writes."""

    tuned: Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tuned is not None and not self.from_runs:
            raise UserError("--tuned names an experiment, not stored baselines (allowed: with --runs)")

    @property
    def folder(self) -> Path:
        """The folder in which the report is written if no other is named."""
        report = self.requested.report_paths if self.from_runs else ResultPaths(self.results).report(self.grid)
        return report.tuning

    @cached_property
    def tuned_experiment(self) -> RequestedExperiment | None:
        """The experiment with tuned values; None if there is no file."""
        file = self.tuned or self.requested.paths.tuned(self.requested.experiment.name)
        if not file.is_file():
            return None
        return RequestedExperiment(str(file), self.results, self.overrides, stored=self.tuned is None)

    def gain(self) -> Gain:
        """The gain of tuning; a `UserError` if untuned or tuned runs are missing."""
        if not self.from_runs:
            if not ((self.baselines or folder_of(self.grid)) / RUNS).is_file() and self._has_trials:
                raise UserError(f"no runs in {self.name}")
            stored = super().runs()
            if TUNED not in set(stored["variant"]):
                add = f"fedflat baselines add TUNED.yaml --grid {self.grid}"
                raise UserError(f"no tuned runs in {self.name}; store them with: {add}; or read runs, with --runs")
            return Gain.of(stored, self.name)
        if self.tuned_experiment is None:
            where = self.tuned or self.requested.paths.tuned(self.requested.experiment.name)
            tune = self.requested.snakemake(f"{self.requested.target}_tune")
            raise UserError(f"no tuned values at '{where}'; search them with: {tune}")
        runs = pd.concat([super().runs(), run_table(self.tuned_experiment)], ignore_index=True)
        if TUNED not in set(runs["variant"]):
            tuned = self.tuned_experiment
            train = tuned.snakemake(f"{tuned.target}_runs")
            raise UserError(f"no finished runs with tuned values; train them with: {train}")
        check_comparable(runs, self.name)
        return Gain.of(runs, self.name)

    def budget(self) -> RanksByBudget:
        """The dependence on the number of trials; a `UserError` if there are no trials without early stopping."""
        return RanksByBudget.of(self._trials)

    def early_stopping(self) -> EarlyStopping | None:
        """What early stopping costs; None where it cannot be known, as in runs and trials of one search."""
        if self.from_runs or not self._has_trials:
            return None
        return EarlyStopping.of(super().runs(), self._trials)

    @cached_property
    def _trials(self) -> pd.DataFrame:
        trials = collect(self.requested) if self.from_runs else load_trials(self.grid, self.baselines)
        if trials is None:
            raise UserError(
                f"no trials without early stopping in {self.name}; store them with: fedflat baselines add-trials "
                f"EXPERIMENT --grid {self.grid}"
            )
        return trials

    @property
    def _has_trials(self) -> bool:
        return file_of(self.grid, self.baselines).is_file()


def has_stored_tuning(grid: str) -> bool:
    """Whether tuned runs, or trials, are stored with a grid."""
    if file_of(grid).is_file():
        return True
    return (folder_of(grid) / RUNS).is_file() and TUNED in set(load(grid).runs["variant"])
