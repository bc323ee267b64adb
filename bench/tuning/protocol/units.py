"""The units of a grid's search: which there are, and of which base each is."""

from functools import cache
from pathlib import Path
from typing import Any

from fedflat.bench.experiments.experiment import Cell
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.tuning.protocol.plan import OfBase, OfMethod, OfRounds
from fedflat.bench.tuning.protocol.reading import SearchedGrid
from fedflat.bench.tuning.protocol.trial import as_trial, with_rounds
from fedflat.bench.tuning.protocol.trial_results import Values
from fedflat.bench.tuning.protocol.unit import Unit
from fedflat.bench.tuning.score import LAST
from fedflat.bench.tuning.trials import value_at, with_values


class Units:
    """The units of a grid, below a folder of results."""

    def __init__(self, grid: SearchedGrid, results: Path) -> None:
        self.grid, self.protocol = grid, grid.protocol
        self.paths = ResultPaths(results)
        self.of = cache(self._of)

    def parts(self, name: str) -> tuple[str, str, int]:
        """Setting, method and tuning seed of a unit's name such as main/fedsam/1000."""
        parts = name.split("/")
        if len(parts) != 3:
            example = f"{next(iter(self.protocol.settings))}/{self.protocol.labels[0]}/{self.protocol.tuning_seeds[0]}"
            raise UserError(f"unit '{name}' (allowed: SETTING/METHOD/SEED, such as {example})")
        kinds = ("setting", "method", "tuning seed")
        known = (self.protocol.settings, self.protocol.labels, [str(seed) for seed in self.protocol.tuning_seeds])
        for part, kind, allowed in zip(parts, kinds, known, strict=True):
            if part not in allowed:
                raise unknown(f"{kind} of '{name}'", part, allowed)
        return parts[0], parts[1], int(parts[2])

    def _of(self, setting: str, label: str, seed: int) -> Unit:
        """A method's search with a tuning seed."""
        base = self.protocol.base_of(label)
        cell = self.grid.cell(setting, label)
        run = as_trial(cell.runs[0], seed)
        ranges, places = self.grid.ranges(base), self.grid.places(label)
        if label == base:
            return self._unit(setting, cell, run, OfBase(self.protocol, label, seed, ranges, _values(run, ranges)))
        of_base: Unit = self.of(setting, base, seed)
        swept = self.protocol.methods[label]
        plan = OfMethod(self.protocol, label, seed, ranges, {}, swept, places)
        return self._unit(setting, cell, run, plan, of_base, swept.model_dump(mode="json"))

    def of_rounds(self, setting: str, label: str, rounds: int) -> Unit:
        """The trials of a method by which the rounds of a setting are chosen."""
        tried = self.protocol.rounds.tried
        cell, places = self.grid.cell(setting, label), self.grid.places(label)
        run = with_rounds(as_trial(cell.runs[0], tried.seed), rounds)
        own = set(cell.runs[0].method.hyperparameters)
        run = with_values(run, {places[name]: value for name, value in tried.values.items() if name in own})
        ranges = self.grid.ranges(self.protocol.base_of(label))
        plan = OfRounds(self.protocol, label, tried.seed, ranges, _values(run, ranges))
        return self._unit(setting, cell, run, plan, name=f"rounds-{rounds}", further=rounds)

    def _unit(
        self,
        setting: str,
        cell: Cell,
        run: RunConfig,
        plan: OfBase | OfMethod | OfRounds,
        of_base: Unit | None = None,
        further: Any = None,
        name: str | None = None,
    ) -> Unit:
        experiment, label = self.grid.experiments[setting], cell.address.method
        folder = self.paths.searched(self.protocol.name, experiment.name, cell.path, name or f"tuning-{plan.seed}")
        report = experiment.report or LAST
        return Unit(f"{setting}/{label}/{name or plan.seed}", folder, cell.address, run, report, plan, of_base, further)


def _values(run: RunConfig, ranges: Any) -> Values:
    return {place: value_at(run, place) for place in ranges}
