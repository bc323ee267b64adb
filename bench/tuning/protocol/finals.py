"""The runs with winning values: for each tuning seed, experiments whose files are written from the searches' results.

NAME_tSEED      the values found with a tuning seed, trained with its training seeds
NAME_xSEED      the values found with the next tuning seed, trained with the training seeds of this one
NAME_k2_tSEED   each base with its values and other amounts, such as twice the local steps: rows of equal compute
CONTRAST_tSEED  another experiment with the main setting's values, such as one with wrong labels
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
import yaml

from fedflat.bench.experiments.experiment import Cell, Experiment, load_experiment
from fedflat.bench.experiments.sections.evaluation import OWN
from fedflat.bench.experiments.sections.tuning import as_yaml
from fedflat.bench.files.atomic import write_text
from fedflat.bench.files.locks import locked
from fedflat.bench.host.progress import Progress
from fedflat.bench.training.lists import is_current
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from fedflat.bench.tuning.protocol.plan import OfMethod
from fedflat.bench.tuning.protocol.schema import Amounts
from fedflat.bench.tuning.protocol.unit import Unit
from fedflat.bench.tuning.protocol.units import Units
from fedflat.bench.tuning.ranges import HYPERPARAMETERS, TRAINING
from fedflat.bench.tuning.score import LAST, in_words
from fedflat.bench.tuning.winners import extended

HEAD = "# The values that the search found. Written by fedflat search.\n"


@dataclass(frozen=True)
class ValueSource:
    """Where the values of an experiment with winning values come from.

    `setting`: where was searched; `seed`: the tuning seed whose training seeds are trained; `of`: the one whose values
    are taken; `experiment`: the one that is extended, by name or file; `suffix`: the end of the new one's name before
    the seed; `amounts`: the factors on the amounts of the bases, which are then its only methods.
    """

    setting: str
    seed: int
    of: int
    experiment: str
    suffix: str
    amounts: Amounts | None = None


@dataclass(frozen=True)
class Winners:
    """An experiment with the winning values of those methods whose searches have ended."""

    units: Units
    source: ValueSource

    @cached_property
    def extended(self) -> Experiment:
        """The experiment that it extends."""
        return load_experiment(self.units.grid.source(self.source.experiment))

    @property
    def name(self) -> str:
        """Such as flat1d_t1000."""
        return f"{self.extended.name}{self.source.suffix}{self.source.seed}"

    @property
    def file(self) -> Path:
        """Its file."""
        return self.units.paths.search(self.units.protocol.name) / f"{self.name}.yaml"

    def unit(self, label: str) -> Unit:
        """The search whose winner a method has. `label`: that of the search."""
        return self.units.of(self.source.setting, label, self.source.of)

    def read(self) -> list[Experiment]:
        """The experiment, if its file exists."""
        return [_loaded(str(self.file), self.file.stat().st_mtime_ns)] if self.file.is_file() else []

    def write(self) -> None:
        """Write its file with all searches that have ended. At least one must have ended."""
        with locked(self.file):
            content = yaml.safe_dump(
                self._content(), sort_keys=False, default_flow_style=None, width=118, allow_unicode=True
            )
            text = HEAD + content
            if not (self.file.is_file() and self.file.read_text(encoding="utf-8") == text):
                write_text(self.file, text)

    def _content(self) -> dict[str, Any]:
        protocol = self.units.protocol
        searched = protocol.labels if self.source.amounts is None else tuple(protocol.bases)
        ended = {label: unit for label in searched if (unit := self.unit(label)).has_ended}
        [setting] = self.extended.settings
        place = setting.where_labels[1]
        return {
            "name": self.name,
            "extends": extended(self.units.grid.source(self.source.experiment), self.file),
            "description": f"{self.extended.description} Values searched with tuning seed {self.source.of}.".strip(),
            **({} if self.source.amounts is None else {"training": self._amounts(self.source.amounts)}),
            "grid": {"seeds": list(protocol.training_seeds(self.source.seed))},
            "tuned": {
                "experiment": self.units.grid.experiments[self.source.setting].name,
                "trials": protocol.trials.all,
                "seed": self.source.of,
                "validation": OWN,
                "score": in_words(self.extended.report or LAST),
                "rungs": [],
                "protocol": protocol.identity,
                "ranges": {label: dict(_ranges(unit)) for label, unit in ended.items()},
                "searched": {label: [place] for label in ended},
            },
            "methods": {label: {"where": {place: _values(unit.winner.values)}} for label, unit in ended.items()},
        }

    def _amounts(self, factors: Amounts) -> dict[str, Any]:
        """More local steps or rounds than in the extended experiment; over more rounds, the rate falls as far."""
        training, changes = self.extended.training, dict[str, Any]()
        if factors.local_steps > 1:
            changes["local_steps"] = factors.local_steps * (training.local_steps or 1)
        if factors.rounds > 1:
            decay = training.lr_decay ** (1 / factors.rounds)
            changes |= {"rounds": factors.rounds * training.rounds, "lr_decay": round(decay, 7)}
        return changes


class Runs(ABC):
    """The runs of a method that follow the search."""

    units: Units
    label: str

    @property
    @abstractmethod
    def name(self) -> str:
        """Such as flat1d_t1000/fedsam."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the searches have ended whose values they have."""

    @property
    @abstractmethod
    def cells(self) -> list[tuple[Experiment, Cell]]:
        """The cells and their experiment; empty as long as the experiment has no values for them."""

    @abstractmethod
    def prepare(self) -> None:
        """Write the experiment's file if there is one."""

    @property
    def folder(self) -> Path:
        """What the process locks that trains them; it need not exist."""
        return self.units.paths.search(self.units.protocol.name) / self.name.replace("/", "-")

    @property
    def has_ended(self) -> bool:
        """Whether the runs are finished with these values."""
        return bool(self.cells) and len(self._finished()) == len(self.cells)

    def advance(self, device: torch.device, progress: Progress) -> None:
        """Train the runs where `fedflat run` does."""
        self.prepare()
        for experiment, cell in self.cells:
            train_cell(experiment.name, cell, self.units.paths.root, device, progress, replace="damaged")

    @property
    def seconds(self) -> float:
        """Of training and evaluation of the finished runs."""
        finished = [RunDirectory(self.units.paths.run(run)) for cell in self._finished() for run in cell.runs]
        return sum(float(run.provenance["seconds"]) for run in finished)

    def _finished(self) -> list[Cell]:
        return [cell for experiment, cell in self.cells if is_current(self.units.paths, experiment.name, cell)]


@dataclass(frozen=True)
class Final(Runs):
    """The runs of a method with winning values."""

    units: Units
    winners: Winners
    label: str

    @property
    def name(self) -> str:
        """Such as flat1d_t1000/fedsam."""
        return f"{self.winners.name}/{self.label}"

    @property
    def is_ready(self) -> bool:
        """Whether the search has ended."""
        return self.winners.unit(self.label).has_ended

    @property
    def cells(self) -> list[tuple[Experiment, Cell]]:
        """One, if the experiment's file has the method."""
        return [(experiment, cell) for experiment in self.winners.read() for cell in _cells(experiment, self.label)]

    def prepare(self) -> None:
        """Write the experiment's file."""
        self.winners.write()


@dataclass(frozen=True)
class Reference(Runs):
    """The runs of a method of an experiment with its own values."""

    units: Units
    experiment: Experiment
    label: str

    @property
    def name(self) -> str:
        """Such as flat1d_central/fedavg."""
        return f"{self.experiment.name}/{self.label}"

    @property
    def is_ready(self) -> bool:
        """Always."""
        return True

    @property
    def cells(self) -> list[tuple[Experiment, Cell]]:
        """One."""
        return [(self.experiment, cell) for cell in _cells(self.experiment, self.label)]

    def prepare(self) -> None:
        """Nothing is written."""


@lru_cache(maxsize=64)
def _loaded(file: str, changed: int) -> Experiment:
    """The experiment in a file, read once for each time at which it was changed."""
    return load_experiment(file, stored=True)


def _cells(experiment: Experiment, label: str) -> list[Cell]:
    return [experiment.cell(address.path) for address in experiment.addresses if address.method == label]


def _values(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Values by place as an entry of `where`."""
    found: dict[str, dict[str, Any]] = {}
    for place, value in values.items():
        section = TRAINING if place.startswith(TRAINING) else HYPERPARAMETERS
        found.setdefault(section.removesuffix("."), {})[place.removeprefix(section)] = value
    return found


def _ranges(unit: Unit) -> Iterator[tuple[str, dict[str, Any]]]:
    """The ranges among which a method was searched, by the names of values: where they ended, and its points."""
    last = unit.read()[-1].planned.ends
    for place, one in unit.plan.ranges.items():
        yield place.rpartition(".")[2], as_yaml(one.with_ends(*last[place]))
    if isinstance(unit.plan, OfMethod) and unit.plan.swept.has_scale:
        yield unit.plan.swept.value, {"values": list(unit.plan.swept.values)}
