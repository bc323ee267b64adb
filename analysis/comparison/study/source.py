"""The table of runs of a study: stored baselines, or the finished runs of an experiment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedflat.analysis.comparison.baselines import folder_of, load
from fedflat.analysis.comparison.comparable import check_accuracies
from fedflat.analysis.comparison.run_table import run_table
from fedflat.analysis.layouts.run_columns import ANALYSED
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.input.errors import UserError


@dataclass(frozen=True)
class StudySource:
    """The stored baselines of a `grid`, or with `from_runs` the runs of the experiment of this name or file.

    `baselines`: the folder of stored baselines; None: that of the grid.
    """

    grid: str
    results: Path
    overrides: Mapping[str, Any]
    from_runs: bool = False
    baselines: Path | None = None

    def __post_init__(self) -> None:
        if self.from_runs and self.baselines is not None:
            raise UserError("--baselines and --runs exclude each other")
        if not self.from_runs and self.overrides:
            raise UserError("--set changes an experiment, not stored baselines (allowed: with --runs)")

    @property
    def requested(self) -> RequestedExperiment:
        """The experiment of the runs."""
        return RequestedExperiment(self.grid, self.results, self.overrides)

    @property
    def name(self) -> str:
        """What is read, for messages."""
        if self.from_runs:
            return f"the runs of {self.requested.experiment.name}"
        return f"the stored baselines of {self.grid}" if self.baselines is None else f"'{self.baselines}'"

    @property
    def folder(self) -> Path:
        """The folder in which the report is written if no other is named."""
        report = self.requested.report_paths if self.from_runs else ResultPaths(self.results).report(self.grid)
        return report.study

    def runs(self) -> pd.DataFrame:
        """The table of runs; a `UserError` if there are none."""
        if not self.from_runs:
            if self.grid.endswith((".yaml", ".yml")):
                raise UserError(f"'{self.grid}' is a file, not a grid of stored baselines; for its runs, add --runs")
            return load(self.grid, self.baselines).runs
        table = run_table(self.requested)
        if table.empty:
            train = self.requested.snakemake(f"{self.requested.target}_runs")
            raise UserError(f"no finished runs of {self.requested.experiment.name}; train them with: {train}")
        check_accuracies(table, f"experiment {self.requested.experiment.name}")
        return table


def has_stored_measures(grid: str) -> bool:
    """Whether baselines of a grid are stored with flatness measures."""
    if not folder_of(grid).is_dir():
        return False
    runs = load(grid).runs
    return any(column in runs and runs[column].notna().any() for column in ANALYSED)
