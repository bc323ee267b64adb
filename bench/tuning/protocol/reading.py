"""The protocol of a grid, read from search.yaml and checked against the experiments that it names."""

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from fedflat.bench.experiments.experiment import Cell, Experiment, load_experiment
from fedflat.bench.experiments.files import PAPER_TABLES, experiment_files, experiment_names, read_yaml
from fedflat.bench.input.errors import UserError, located, unknown
from fedflat.bench.methods.marks import Neutral
from fedflat.bench.methods.recipe import Recipe
from fedflat.bench.tuning.given import SERVER_LR
from fedflat.bench.tuning.protocol.schema import Protocol
from fedflat.bench.tuning.ranges import places_of

FILE = "search.yaml"
"""The name of a protocol's file, in the folder of its main setting's experiments.yaml."""


def protocol_file(name: str) -> Path:
    """The file of a grid's protocol; a `UserError` if it has none."""
    file = PAPER_TABLES / name / FILE
    if name not in experiment_names() or not file.is_file():
        raise unknown("protocol", name, [one for one in experiment_names() if (PAPER_TABLES / one / FILE).is_file()])
    return file


def has_protocol(grid: str) -> bool:
    """Whether there is a protocol with this name, or whether it is the file of one."""
    return grid.endswith((".yaml", ".yml")) or (PAPER_TABLES / grid / FILE).is_file()


def is_of_protocol(experiment: str) -> bool:
    """Whether an experiment, or one that it extends, has a protocol in its folder."""
    return any(file.with_name(FILE).is_file() for file in experiment_files(experiment))


class SearchedGrid:
    """A protocol with its experiments. `folder`: that of the protocol's file, from which it names files."""

    def __init__(self, protocol: Protocol, folder: Path = Path()) -> None:
        self.protocol = protocol
        self.folder = folder

    @classmethod
    def read(cls, name: str) -> "SearchedGrid":
        """The grid with this name, or with this file; a `UserError` names what is wrong."""
        file = Path(name) if name.endswith((".yaml", ".yml")) else protocol_file(name)
        grid = cls(Protocol.parse(read_yaml(file), str(file)), file.parent)
        try:
            grid.check()
        except UserError as error:
            raise located(str(file), error) from None
        return grid

    @cached_property
    def experiments(self) -> dict[str, Experiment]:
        """By setting."""
        return {setting: load_experiment(self.source(name)) for setting, name in self.protocol.settings.items()}

    def source(self, name: str) -> str:
        """An experiment by its name, or by the path of its file, as commands take it."""
        return str(self.folder / name) if name.endswith((".yaml", ".yml")) else name

    @property
    def main(self) -> str:
        """The first setting."""
        return next(iter(self.protocol.settings))

    def cell(self, setting: str, label: str) -> Cell:
        """The cell of a method in a setting."""
        experiment = self.experiments[setting]
        [path] = [address.path for address in experiment.addresses if address.method == label]
        return experiment.cell(path)

    def places(self, label: str) -> dict[str, str]:
        """The places of a method's values by their names."""
        entry = self.experiments[self.main].methods[label]
        places = places_of(entry.choice(label).recipe, has_swa=False)
        return {**places, "swa": "hyperparameters.swa"}

    def ranges(self, label: str) -> dict[str, Any]:
        """The ranges of a base by place; a server without a rate has none of it."""
        places, found = self.places(label), self.protocol.ranges_of(label)
        method = self.cell(self.main, label).runs[0].method
        ranges = {places[name]: one for name, one in found.items()}
        if method.built.server.needs_unit_server_lr():
            ranges.pop(SERVER_LR, None)
        return ranges

    def check(self) -> None:
        """A `UserError` if the protocol and its experiments do not fit together."""
        protocol = self.protocol
        for setting, experiment in self.experiments.items():
            if len(experiment.settings) != 1:
                raise UserError(f"experiment {experiment.name} has {len(experiment.settings)} settings (allowed: one)")
            for label in protocol.labels:
                if label not in experiment.methods:
                    raise unknown(f"method of experiment {experiment.name}", label, experiment.methods)
            self._check_rounds(setting, experiment)
        for base in protocol.bases:
            _check_names(base, protocol.bases[base], self.places(base))
        for label, swept in protocol.methods.items():
            places = self.places(label)
            _check_names(label, [swept.value, *swept.fixed, *(name for one in swept.further for name in one)], places)
            _check_names(label, protocol.bases[swept.base], places)
            _check_base(label, self._recipe(label), swept.base, self._recipe(swept.base))
            _check_neutral(label, self._recipe(label), swept.value, swept.values[0])

    def _recipe(self, label: str) -> Recipe:
        return self.experiments[self.main].methods[label].choice(label).recipe

    def _check_rounds(self, setting: str, experiment: Experiment) -> None:
        chosen = self.protocol.rounds.chosen[setting]
        if chosen is not None and experiment.training.rounds != chosen:
            raise UserError(
                f"rounds.chosen.{setting} = {chosen}, but experiment {experiment.name} has training.rounds = "
                f"{experiment.training.rounds} (allowed: the same)"
            )


def _check_names(label: str, names: Any, places: Mapping[str, str]) -> None:
    for name in names:
        if name not in places:
            raise unknown(f"value of {label}", name, [one for one in places if "." not in one])


def _check_base(label: str, recipe: Recipe, base: str, of_base: Recipe) -> None:
    """A `UserError` unless the method has its base's correction, server and loss, or kinds of them."""
    for slot, kind in of_base.components.by_slot().items():
        own = recipe.components.by_slot()[slot]
        if slot != "perturbation" and not issubclass(own, kind):
            raise UserError(f"{label} has another {slot} than its base {base} (allowed: {kind.name})")


def _check_neutral(label: str, recipe: Recipe, name: str, first: Any) -> None:
    """A `UserError` if the first point is not the value at which the method's value has no effect."""
    marks = [mark for mark in getattr(recipe.hyperparameters.get(name), "metadata", ()) if isinstance(mark, Neutral)]
    for mark in marks:
        if isinstance(mark.value, int | float) and not math.isclose(first, mark.value):
            raise UserError(f"the first point of {label} is {name} = {first} (allowed: {mark.value}, without effect)")
