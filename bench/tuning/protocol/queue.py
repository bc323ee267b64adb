"""The work of a search in the order of the protocol. Several processes share it: each takes what no other one has."""

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol as Interface

import torch

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.tuning.protocol.finals import Final, Reference, ValueSource, Winners
from fedflat.bench.tuning.protocol.rounds import Rounds
from fedflat.bench.tuning.protocol.schema import EQUAL_COMPUTE, ITSELF, ROUNDS
from fedflat.bench.tuning.protocol.units import Units

WAIT_SECONDS = 5.0
"""Between two looks at what other processes have finished."""


class Item(Interface):
    """A piece of work that one process does at a time."""

    @property
    def name(self) -> str:
        """In messages."""

    @property
    def folder(self) -> Path:
        """Locked by the process that works on it."""

    @property
    def is_ready(self) -> bool:
        """Whether all is there that it needs."""

    @property
    def has_ended(self) -> bool:
        """Whether it is done."""

    def advance(self, device: torch.device, progress: Progress) -> object:
        """Do a part of it, such as a batch of trials, and store the results."""


class Queue:
    """The items of a grid's search, by the entries of `budget.order`."""

    def __init__(self, units: Units) -> None:
        self.units, self.protocol = units, units.protocol

    @cached_property
    def entries(self) -> dict[str, list[Item]]:
        """All items in order, each below the first entry that has it."""
        seen: set[str] = set()
        found: dict[str, list[Item]] = {}
        for entry in self.protocol.budget.order:
            found[entry] = []
            for item in self._items(entry):
                if item.name not in seen:
                    seen.add(item.name)
                    found[entry].append(item)
        return found

    def named(self, names: Sequence[str]) -> list[Item]:
        """The items with these names: entries of the order, units with their bases and runs, or rounds/SETTING."""
        found: dict[str, Item] = {}
        for name in names:
            for item in self._named(name):
                found.setdefault(item.name, item)
        return list(found.values())

    def _named(self, name: str) -> Iterator[Item]:
        kind, _, setting = name.partition("/")
        if kind == ROUNDS and setting:
            if setting not in self.protocol.settings:
                raise unknown("setting", setting, self.protocol.settings)
            yield from self.of_rounds(setting)
        elif name in self.entries:
            yield from self.entries[name]
        elif "/" in name:
            setting, label, seed = self.units.parts(name)
            self._require_rounds(setting)
            for one in dict.fromkeys((self.protocol.base_of(label), label)):
                yield from self._searched(setting, one, seed)
        else:
            raise unknown("entry or unit", name, [*self.entries, "main/fedsam/1000"])

    def of_rounds(self, setting: str) -> list[Item]:
        """The trials by which the rounds of a setting are chosen, as far as they are known to be needed."""
        return [RoundsItem(Rounds(self.units, setting))]

    def _items(self, entry: str) -> Iterator[Item]:
        first = next(iter(self.protocol.settings))
        if entry == ROUNDS:
            yield from () if self._has_rounds(first) else self.of_rounds(first)
        elif entry in self.protocol.contrasts or entry in self.protocol.references:
            if self._has_rounds(first):
                yield from self._contrast(entry, first) if entry in self.protocol.contrasts else self._reference(entry)
        else:
            setting, _, group = entry.partition(".")
            if not self._has_rounds(setting):
                yield from self.of_rounds(setting)
                return
            yield from self._of_setting(setting, group)

    def _of_setting(self, setting: str, group: str) -> Iterator[Item]:
        experiment = self.protocol.settings[setting]
        for seed in self.protocol.tuning_seeds:
            if group == EQUAL_COMPUTE:
                for name, factors in self.protocol.equal_compute.items():
                    winners = Winners(self.units, ValueSource(setting, seed, seed, experiment, f"_{name}_t", factors))
                    yield from (Final(self.units, winners, label) for label in self.protocol.bases)
            elif group == ITSELF:
                winners = Winners(self.units, ValueSource(setting, seed, self.protocol.after(seed), experiment, "_x"))
                yield from (Final(self.units, winners, label) for label in self.protocol.labels)
            else:
                for pair in self.protocol.pairs[group]:
                    for label in reversed(pair):  # the base first
                        yield from self._searched(setting, label, seed)

    def _searched(self, setting: str, label: str, seed: int) -> Iterator[Item]:
        """A method's search with a tuning seed, and its runs with the winning values."""
        source = ValueSource(setting, seed, seed, self.protocol.settings[setting], "_t")
        yield self.units.of(setting, label, seed)
        yield Final(self.units, Winners(self.units, source), label)

    def _reference(self, entry: str) -> Iterator[Item]:
        experiment = load_experiment(self.units.grid.source(self.protocol.references[entry]))
        yield from (Reference(self.units, experiment, label) for label in experiment.methods)

    def _contrast(self, entry: str, setting: str) -> Iterator[Item]:
        """The methods of the first group of pairs."""
        labels = dict.fromkeys(label for pair in next(iter(self.protocol.pairs.values())) for label in reversed(pair))
        for seed in self.protocol.tuning_seeds:
            winners = Winners(self.units, ValueSource(setting, seed, seed, self.protocol.contrasts[entry], "_t"))
            yield from (Final(self.units, winners, label) for label in labels)

    def _has_rounds(self, setting: str) -> bool:
        return self.protocol.rounds.chosen[setting] is not None

    def _require_rounds(self, setting: str) -> None:
        if not self._has_rounds(setting):
            raise UserError(
                f"rounds.chosen.{setting} is null in the protocol (allowed: the number that fedflat search "
                f"{self.protocol.name} rounds/{setting} finds, also as training.rounds of the experiment)"
            )


class RoundsItem:
    """The rule for the rounds of a setting, one batch of trials after the other."""

    def __init__(self, rule: Rounds) -> None:
        self.rule = rule
        self.name = f"{ROUNDS}/{rule.setting}"

    @property
    def folder(self) -> Path:
        """In the folder of its units."""
        unit = self.rule.of(self.rule.units.protocol.rounds.candidates[0])[0]
        return unit.folder.with_name(ROUNDS)

    is_ready = True

    @property
    def has_ended(self) -> bool:
        """Whether the rule has a result."""
        return self.rule.result() is not None

    def advance(self, device: torch.device, progress: Progress) -> None:
        """Train the trials of one method."""
        self.rule.missing()[0].advance(device, progress)


def work(items: Sequence[Item], device: torch.device, progress: Progress, seconds: float | None = None) -> bool:
    """Do the items in order, one batch after the other; False if the time is over before.

    What another process works on is left to it; at the end, its results are awaited if something depends on them.
    Returns also if nothing that is left can be done.
    """
    end = None if seconds is None else time.monotonic() + seconds
    left = list(items)
    while left := [item for item in left if not item.has_ended]:
        is_busy = False
        for item in left:
            if not item.is_ready:
                continue
            with folder_lock(_with_parent(item.folder)) as is_free:
                is_busy |= not is_free
                if not is_free or item.has_ended:
                    continue
                if not _done(item, device, progress, end):
                    return False
            break  # what is first in order and has become ready comes next
        else:
            if not is_busy:
                return True
            time.sleep(WAIT_SECONDS)
    return True


def _done(item: Item, device: torch.device, progress: Progress, end: float | None) -> bool:
    """Do an item to its end; False if the time is over before."""
    while not item.has_ended:
        if end is not None and time.monotonic() >= end:
            return False
        item.advance(device, progress)
    return True


def _with_parent(folder: Path) -> Path:
    """The folder, above which the folders exist from now on."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder
