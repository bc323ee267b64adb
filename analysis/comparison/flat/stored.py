"""What a search by a protocol has found so far, as it is stored with the repository.

results/baselines/EXPERIMENT        runs with winning values of a setting, all tuning seeds
results/baselines/EXPERIMENT_x      runs with the same training seeds and the values of the next tuning seed
results/baselines/EXPERIMENT_NAME   the bases with more compute; NAME is an entry of the protocol's `equal_compute`
results/baselines/REFERENCE         runs of an experiment with its own values, such as at one client
results/baselines/GRID/search.csv   all trials of the searches
"""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from fedflat.analysis.comparison.adding import add
from fedflat.analysis.comparison.baselines import folder_of, load
from fedflat.analysis.comparison.flat.search import add_search, load_search
from fedflat.analysis.comparison.flat.units import units
from fedflat.analysis.comparison.run_table import finished_runs
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.installed import RUNS
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.input.errors import UserError
from fedflat.bench.tuning.protocol.reading import SearchedGrid
from fedflat.bench.tuning.protocol.schema import Protocol

CROSSED = "x"
"""The end of the name of a grid with the values of the next tuning seed."""


@dataclass(frozen=True)
class Stored:
    """The stored results of a grid's protocol, by its name or file. What is not there yet gives empty tables.

    `folder`: that of all stored grids; None: results/baselines.
    """

    grid: str
    folder: Path | None = None

    @cached_property
    def searched(self) -> SearchedGrid:
        """The protocol with its experiments."""
        return SearchedGrid.read(self.grid)

    @property
    def protocol(self) -> Protocol:
        """The protocol."""
        return self.searched.protocol

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The runs with winning values, of all settings."""
        return self.runs_of("")

    @cached_property
    def units(self) -> pd.DataFrame:
        """Their units."""
        return units(self.runs, self.protocol.fitted.least)

    @cached_property
    def trials(self) -> pd.DataFrame | None:
        """The trials of the searches; None if none are stored."""
        return load_search(self.protocol.name, self._place(self.protocol.name))

    def runs_of(self, end: str) -> pd.DataFrame:
        """The runs of grids whose names are those of the settings with this end."""
        names = [experiment.name for experiment in self.searched.experiments.values()]
        found = [runs for name in names if len(runs := self.stored_in(f"{name}{end}"))]
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    def stored_in(self, grid: str) -> pd.DataFrame:
        """The runs of a stored grid."""
        place = self._place(grid)
        file = (place or folder_of(grid)) / RUNS
        return load(grid, place).runs if file.is_file() else pd.DataFrame()

    def _place(self, grid: str) -> Path | None:
        return None if self.folder is None else self.folder / grid


def store(
    grid: str,
    results: Path,
    folder: Path | None = None,
    *,
    analyses: bool = True,
    progress: Callable[[str], object] = print,
) -> None:
    """Store what a search by a grid's protocol has found: its trials, and all runs of methods whose runs are finished.

    What is stored already is replaced. `folder`: that of all stored grids; None: results/baselines. `analyses`: whether
    the analyses of runs with winning values are stored, as far as they are computed.
    """
    searched = SearchedGrid.read(grid)
    name_of_grid = searched.protocol.name
    by_grid = defaultdict[str, list[RequestedExperiment]](list)
    for file in sorted(ResultPaths(results).search(name_of_grid).glob("*.yaml")):
        if (name := grid_of(file.stem)) is not None:
            by_grid[name].append(RequestedExperiment(str(file), results, {}, stored=True))
    for source in map(searched.source, searched.protocol.references.values()):
        reference = RequestedExperiment(source, results, {})
        if finished_runs(reference):
            by_grid[reference.experiment.name].append(reference)
    with_analyses = {experiment.name for experiment in searched.experiments.values()} if analyses else set()
    for name, requests in by_grid.items():
        try:
            place = folder and folder / name
            progress(str(add(requests, name, place, analyses=name in with_analyses, replace=True)))
        except UserError as error:
            progress(f"not stored: {name}: {error}")
    progress(str(add_search(name_of_grid, results, folder and folder / name_of_grid)))


def grid_of(experiment: str) -> str | None:
    """The stored grid of an experiment that a search has written: flat1d of flat1d_t1000; None for other names."""
    found = re.fullmatch(r"(.+)_(t|x)\d+", experiment)
    return found and (found[1] if found[2] == "t" else f"{found[1]}_{CROSSED}")
