"""A method of one's own, compared with the stored results of a grid's protocol in its main setting.

It is searched as the methods of the protocol are, once for each stored tuning seed: its base's stored trials are taken,
and its own trials follow. A method whose correction, server and loss are those of no base is searched as a base is, its
own hyper-parameters among the ranges. All its files are below results/compare/GRID/LABEL.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml

from fedflat.analysis.comparison.baselines import Baselines, load
from fedflat.analysis.comparison.compare import Comparison, comparison_of
from fedflat.analysis.comparison.flat.pairs import BASE, pairs
from fedflat.analysis.comparison.flat.search import trials_of
from fedflat.analysis.comparison.flat.stored import Stored
from fedflat.analysis.comparison.flat.units import unit_curves, units
from fedflat.analysis.comparison.report_table import number, with_interval
from fedflat.analysis.comparison.run_table import TUNED, curve_table, finished_runs, run_table
from fedflat.analysis.planning.compared_method import entry_of
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.engine.method_costs import example
from fedflat.bench.experiments.files import read_yaml
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.experiments.schema import MethodEntry
from fedflat.bench.files.atomic import write_text
from fedflat.bench.files.csv_json import write_checked_csv
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.marks import Neutral, Radius, Search
from fedflat.bench.methods.recipe import Recipe
from fedflat.bench.tuning.protocol.finals import Final, ValueSource, Winners
from fedflat.bench.tuning.protocol.queue import work
from fedflat.bench.tuning.protocol.reading import SearchedGrid, protocol_file
from fedflat.bench.tuning.protocol.units import Units

GROUP = "compared"
"""The group of the only pair of the method's protocol."""

SEEDS = "seeds are tuning seeds: each is a whole search, with the mean of its training seeds"


@dataclass(frozen=True)
class ComparedByProtocol:
    """A method by its label and entry in an experiment, and the stored results of a grid; `results`: the folder."""

    label: str
    entry: Mapping[str, Any]
    stored: Stored
    results: Path

    @classmethod
    def of(cls, method: str, grid: str, results: Path, baselines: Path | None = None) -> "ComparedByProtocol":
        """A method by its Python file, as EXPERIMENT:LABEL, or by its name in the catalog."""
        label, entry = entry_of(method, Path(grid).parent / "experiments.yaml" if grid.endswith("yaml") else grid)
        return cls(label, entry, Stored(grid, baselines), results)

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return ResultPaths(self.results).compared(self.stored.protocol.name, self.label).with_suffix("")

    @cached_property
    def recipe(self) -> Recipe:
        """Its recipe."""
        return MethodEntry.parse(dict(self.entry), self.label).choice(self.label).recipe

    @cached_property
    def base(self) -> str:
        """The base with its correction, server and loss; the method itself if the protocol has none."""
        own, searched = self.recipe.components.by_slot(), self.stored.searched
        for base in self.stored.protocol.bases:
            slots = searched.experiments[searched.main].methods[base].choice(base).recipe.components.by_slot()
            if all(own[slot] is kind for slot, kind in slots.items() if slot != "perturbation"):
                return base
        return self.label

    @property
    def is_base(self) -> bool:
        """Whether the method is searched as a base is."""
        return self.base == self.label

    @cached_property
    def known(self) -> pd.DataFrame:
        """The stored units of the main setting."""
        found = self.stored.units
        if found.empty:
            return found
        [setting] = self.stored.searched.experiments[self.stored.searched.main].settings
        is_main = found["dataset"].eq(setting.dataset) & found["partition"].eq(setting.partition)
        return found[is_main & found["participation"].eq(setting.participation)]

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The stored trials of the base in the main setting."""
        place = self.stored.searched.cell(self.stored.searched.main, self.base).address
        return pd.DataFrame() if self.stored.trials is None else trials_of(self.stored.trials, place)

    @cached_property
    def seeds(self) -> list[int]:
        """The tuning seeds that are stored for the base, or for any method; a `UserError` if there is none."""
        if self.is_base:
            wanted, seeds = "no search", set(self.known["seed"]) if len(self.known) else set()
        else:
            wanted = f"no search of {self.base}, the base of {self.label},"
            of_units = self.known[self.known["method"] == self.base]["seed"] if len(self.known) else ()
            seeds = set(of_units) & set(self.trials["tuning_seed"] if len(self.trials) else ())
        if not seeds:
            raise UserError(
                f"{wanted} is stored with {self.stored.protocol.name}; search it with: fedflat search "
                f"{self.stored.grid}; and store it with: fedflat baselines add-search {self.stored.grid}"
            )
        return sorted(seeds)

    @cached_property
    def units(self) -> Units:
        """The searches of the method and of its base; the files are written, with the base's trials."""
        experiment, protocol = self.folder / "experiments.yaml", self.folder / "search.yaml"
        _write(experiment, self._experiment())
        _write(protocol, self._protocol())
        found = Units(SearchedGrid.read(str(protocol)), self.folder)
        for seed in () if self.is_base else self.seeds:
            unit = found.of(found.grid.main, self.base, seed)
            if not unit.has_ended:
                write_checked_csv(unit.file, self.trials[self.trials["tuning_seed"] == seed])
        return found

    def search(self, device: torch.device, progress: Progress) -> None:
        """Search, and train the winning values, for each stored tuning seed; what is done already is kept."""
        items = [
            one for seed in self.seeds for one in (self._unit(seed), Final(self.units, self.winners(seed), self.label))
        ]
        work(items, device, progress)

    def winners(self, seed: int) -> Winners:
        """The experiment with the winning values of a tuning seed."""
        name = self.units.protocol.settings[self.units.grid.main]
        return Winners(self.units, ValueSource(self.units.grid.main, seed, seed, name, "_t"))

    @property
    def is_stored(self) -> bool:
        """Whether the method is one of the protocol, with stored results."""
        return len(self.known) > 0 and self.label in set(self.known["method"])

    def comparison(self) -> Comparison:
        """The comparison with all stored methods of the main setting that have these tuning seeds.

        Its rows are units: their seeds are tuning seeds.
        """
        main = self.stored.searched.experiments[self.stored.searched.main].name
        place = None if self.stored.folder is None else self.stored.folder / main
        rivals = load(main, place)
        runs, curves = (rivals.runs, rivals.curves) if self.is_stored else self._trained()
        mine = units(runs, self.stored.protocol.fitted.least)
        own_curves = unit_curves(runs, curves)
        is_own = mine["method"] == self.label
        made = comparison_of(
            mine[is_own],
            own_curves[own_curves["method"] == self.label],
            Baselines(units(rivals.runs, self.stored.protocol.fitted.least), unit_curves(rivals.runs, rivals.curves)),
            grid=main,
            variant=TUNED,
            metric="test_accuracy",
            source=main if self.is_stored else str(self.winners(self.seeds[0]).file),
            baselines=place,
        )
        lead = () if self.is_base else (self.answer(mine[is_own]),)
        return replace(made, lead=lead, notes=(SEEDS, *made.notes))

    def _trained(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The method's runs with winning values, and their curves."""
        requests = [
            RequestedExperiment(str(self.winners(seed).file), self.folder, {}, stored=True) for seed in self.seeds
        ]
        runs, curves = [], []
        for requested in requests:
            own = [run for run in finished_runs(requested) if run.address.method == self.label]
            runs.append(run_table(requested, own))
            curves.append(curve_table(requested, own))
        return pd.concat(runs, ignore_index=True), pd.concat(curves, ignore_index=True)

    def answer(self, mine: pd.DataFrame) -> str:
        """What the method adds to its base, in words."""
        both = pd.concat([mine, self.known[self.known["method"] == self.base]], ignore_index=True)
        protocol = self.stored.protocol.model_copy(update={"pairs": {GROUP: ((self.label, self.base),)}})
        row = pairs(both, protocol).iloc[0]
        sides = {
            name: f"{number(row[column], '.1f')} and {number(row[f'{column}{BASE}'], '.1f')}"
            for name, column in (("training", "train_accuracy"), ("test", "test_accuracy"))
        }
        difference = with_interval(row["difference"], row["low"], row["high"], "+.1f")
        return (
            f"{row['title']} − {row[f'title{BASE}']}: {difference} points in test accuracy, {row['n']} tuning seeds, "
            f"{row['state']} (training {sides['training']} %, test {sides['test']} %)."
        )

    def _unit(self, seed: int) -> Any:
        return self.units.of(self.units.grid.main, self.label, seed)

    def _experiment(self) -> dict[str, Any]:
        """The method, with its base, in the experiment of the main setting."""
        searched = self.stored.searched
        source = searched.source(self.stored.protocol.settings[searched.main])
        return {
            "name": f"{searched.experiments[searched.main].name}_{self.label.replace('+', '_')}",
            "extends": str(Path(source).absolute()) if source.endswith(("yaml", "yml")) else source,
            "methods": {**({} if self.is_base else {self.base: None}), self.label: dict(self.entry)},
        }

    def _protocol(self) -> dict[str, Any]:
        """The grid's protocol with the method and its base; what all searches have in common stays."""
        grid, main = self.stored.grid, self.stored.searched.main
        content = dict(read_yaml(Path(grid) if grid.endswith(("yaml", "yml")) else protocol_file(grid)))
        for key in ("equal_compute", "contrasts", "references", "left_out", "flatness_after"):
            content.pop(key, None)
        content |= {
            "settings": {main: "experiments.yaml"},
            "rounds": {**content["rounds"], "chosen": {main: content["rounds"]["chosen"][main]}},
            "bases": {self.base: self._ranges() if self.is_base else content["bases"][self.base]},
            "methods": {} if self.is_base else {self.label: self._swept()},
            "pairs": {GROUP: [] if self.is_base else [[self.label, self.base]]},
            "budget": {**content["budget"], "order": [f"{main}.{GROUP}"]},
        }
        return content

    def _ranges(self) -> dict[str, Any]:
        """The ranges of its own hyper-parameters, which do not widen: they are the author's."""
        found = {name: _search(field.metadata) for name, field in self.recipe.hyperparameters.items()}
        return {
            name: {"low": given.ends[0], "high": given.ends[1], "log": given.log, "bound": list(given.ends)}
            for name, given in found.items()
            if given is not None and given.values is None
        }

    def _swept(self) -> dict[str, Any]:
        """What the method tries at its base's best two: points of its own value without effect at 0, and others."""
        searched = self.stored.searched
        base = searched.experiments[searched.main].methods[self.base].choice(self.base).recipe
        own = {
            name: field.metadata
            for name, field in self.recipe.hyperparameters.items()
            if name not in base.hyperparameters
        }
        neutral = [name for name, marks in own.items() if any(isinstance(m, Neutral) and m.value == 0 for m in marks)]
        if not neutral:
            raise UserError(
                f"{self.label} has no hyper-parameter that is marked Neutral(0), with which it is its base {self.base} "
                "(allowed: at least one, such as the radius of the file of fedflat new-method)"
            )
        value = next((name for name in neutral if any(isinstance(mark, Radius) for mark in own[name])), neutral[0])
        points, beyond = self._points(own[value])
        others = {name: _search(marks) for name, marks in own.items() if name != value}
        fixed = {name: given for name, given in example(self.recipe).items() if name in own and name != value}
        further = _further({name: one for name, one in others.items() if one}, self.stored.protocol.trials.further)
        found = {"base": self.base, "points": {value: points}, "beyond": beyond, "fixed": fixed, "further": further}
        return {key: given for key, given in found.items() if given}

    def _points(self, marks: Any) -> tuple[list[float], float | None]:
        """The radii of the protocol's first method for a radius; else 0, and as many values in the own range."""
        first = next(iter(self.stored.protocol.methods.values()))
        given = _search(marks)
        if any(isinstance(mark, Radius) for mark in marks) or given is None:
            return list(first.values), first.beyond
        return [0.0, *_spaced(given, len(first.values) - 1)], None


def _search(marks: Any) -> Search | None:
    return next((mark for mark in marks if isinstance(mark, Search)), None)


def _further(others: Mapping[str, Search], count: int) -> list[dict[str, Any]]:
    """Values of other hyper-parameters, as many for each; none if they do not come out even."""
    names = list(others)[:count]
    if not names or count % len(names):
        return []
    found = [{name: value} for name in names for value in _spaced(others[name], count // len(names))]
    return found if len(found) == count else []


def _spaced(search: Search, count: int) -> list[Any]:
    """So many values of a range, evenly on its scale, its ends among them; listed values from the first on."""
    if search.values is not None:
        return list(search.values[:count])
    low, high = search.ends
    values = np.geomspace(low, high, count) if search.log else np.linspace(low, high, count)
    return [float(f"{value:.3g}") for value in values]


def _write(file: Path, content: Mapping[str, Any]) -> None:
    """Write a file, unless it has this content."""
    text = yaml.safe_dump(dict(content), sort_keys=False, default_flow_style=None, width=118, allow_unicode=True)
    if not (file.is_file() and file.read_text(encoding="utf-8") == text):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
