"""Estimates what targets of Snakemake cost before they are computed: runs, hours of one core and disk space.

Hours are those of training and evaluation, computed from the times of gradients (`fedflat.analysis.planning.run_cost`);
the hours of analyses are not included.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from fedflat.analysis.planning.gradient_times import Times
from fedflat.analysis.planning.run_cost import disk, seconds
from fedflat.analysis.planning.targets import experiments_with, find_targets, named_in
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.results import PARTITION, TRIALS
from fedflat.bench.files.text_table import aligned
from fedflat.bench.training.current import current_run
from fedflat.bench.tuning.halving import budget

NamedCell = tuple[str, str]
"""A cell by the name of its experiment and its path."""


@dataclass(frozen=True)
class Cost:
    """Cost of several runs: finished ones, those that other cells train (`taken`), hours and bytes of the rest."""

    runs: int = 0
    finished: int = 0
    taken: int = 0
    hours: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.runs + other.runs,
            self.finished + other.finished,
            self.taken + other.taken,
            self.hours + other.hours,
            self.bytes + other.bytes,
        )


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of costs."""
    return reduce(add, costs, Cost())


@dataclass(frozen=True)
class CellCosts:
    """The costs of the cells of experiments, each computed when it is first requested.

    `experiments`: by name; `ignore_finished`: finished and taken runs cost as much as missing ones.
    """

    experiments: Mapping[str, RequestedExperiment]
    times: Times
    ignore_finished: bool = False
    _known: dict[NamedCell, Cost] = field(default_factory=dict, init=False)
    _planned: set[str] = field(default_factory=set, init=False)
    """The identities of the runs that are trained: other cells have them, too."""

    @classmethod
    def of_experiments(
        cls, requested: Iterable[RequestedExperiment], times: Times, *, ignore_finished: bool = False
    ) -> "CellCosts":
        """The costs of the cells of these experiments."""
        return cls({one.experiment.name: one for one in requested}, times, ignore_finished)

    def of(self, requested: RequestedExperiment, files: Iterable[Path]) -> dict[NamedCell, Cost]:
        """Costs of all cells that files of an experiment need: their own cells, and those that analyses compare with.

        Tidy files may belong to other experiments, if a paper quotes another one.
        """
        cells: dict[NamedCell, None] = {}
        searches: dict[NamedCell, Path] = {}
        for file in files:
            found = requested.paths.cell_of(file)
            if found is None or file.name == PARTITION:  # a split needs no run
                continue
            experiment, cell = found
            if file.name == TRIALS:
                searches[experiment, cell.path] = file
                continue
            cells[experiment, cell.path] = None
            owner = self.experiments[experiment]
            if file.stem in owner.analyses:
                cells |= dict.fromkeys((experiment, path) for path in owner.compared(cell.path, file.stem))
        costs = {cell: self._cell(cell) for cell in cells}
        for (experiment, path), file in searches.items():
            costs[f"{experiment} (trials)", path] = self._search(experiment, path, file)
        return costs

    def _search(self, experiment: str, path: str, trials: Path) -> Cost:
        """The cost of the trials of a cell, which count as runs; their states are removed at the end."""
        tuned = self.experiments[experiment].experiment
        tuning, run = tuned.tuning, tuned.cell(path).runs[0]
        if not self.ignore_finished and trials.is_file():
            return Cost(tuning.trials, tuning.trials)
        runs = budget(tuning.rungs, tuning.trials, run.training.rounds)
        return Cost(tuning.trials, hours=runs * seconds(run, self.times) / 3600)

    def _cell(self, cell: NamedCell) -> Cost:
        if cell not in self._known:
            experiment, path = cell
            requested = self.experiments[experiment]
            runs = requested.experiment.cell(path).runs
            missing, taken = list(runs), 0
            if not self.ignore_finished:
                places = [(requested.paths.run(run), run) for run in runs]
                missing = [run for there, run in places if not current_run(there, run, replace="damaged", inputs=False)]
                taken = sum(run.identity in self._planned for run in missing)
                self._planned.update(run.identity for run in missing)
            left = len(missing) - taken
            # The runs of a cell differ in their seeds alone. If all are finished, no gradient is timed.
            hours, size = (seconds(runs[0], self.times) / 3600, disk(runs[0])) if left else (0.0, 0.0)
            self._known[cell] = Cost(len(runs), len(runs) - len(missing), taken, left * hours, left * size)
        return self._known[cell]


def plan(
    targets: Sequence[str], results: Path, overrides: dict[str, Any], times: Times, sources: Sequence[str] = ()
) -> dict[str, Cost]:
    """The cost of targets such as fedgf_table_1, fedgf, mine.yaml or all_tables, by experiment and part.

    A cell that several targets need is counted once. `sources`: names or files of further experiments whose targets are
    allowed. For an unknown target, a `UserError` suggests the nearest one.
    """
    targets, sources = named_in(targets, sources)
    experiments = experiments_with(results, overrides, sources)
    costs = CellCosts.of_experiments(experiments, times)
    needed: dict[NamedCell, Cost] = {}
    for target in find_targets(targets, experiments):
        needed |= costs.of(target.requested, target.inputs())
    parts: dict[str, Cost] = {}
    for (experiment, path), cost in needed.items():
        part = f"{experiment}: {path.split('/')[0]}"
        parts[part] = parts.get(part, Cost()) + cost
    return parts


def as_text(parts: Mapping[str, Cost]) -> str:
    """One line per part, and their sum."""
    if not parts:
        return "nothing to train"
    rows = {**parts, "all": total(parts.values())} if len(parts) != 1 else parts
    header = ("part", "runs", "finished", "taken", "hours of one core", "GiB")
    numbers = [
        (part, f"{one.runs:,}", f"{one.finished:,}", f"{one.taken:,}", rounded(one.hours), rounded(one.bytes / 2**30))
        for part, one in rows.items()
    ]
    return "\n".join(aligned([header, *numbers], right=range(1, len(header))))


def rounded(number: float) -> str:
    """Two significant digits, such as 48,000 or 0.083; positive numbers below 0.01 are not distinguished."""
    if number == 0:
        return "0"
    return f"{float(f'{number:.2g}'):,.10g}" if number >= 0.01 else "< 0.01"
