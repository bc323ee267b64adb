"""What a search has done, what it has spent, and about how long the rest takes."""

import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from fedflat.bench.engine.method_costs import measured_costs
from fedflat.bench.tuning.cell_search import DIVERGED, TRAINED
from fedflat.bench.tuning.protocol.finals import Final, Runs
from fedflat.bench.tuning.protocol.queue import Item, Queue
from fedflat.bench.tuning.protocol.rounds import Rounds
from fedflat.bench.tuning.protocol.schema import ROUNDS
from fedflat.bench.tuning.protocol.unit import FINISHED_WITH, Unit

HOUR = 3600.0


@dataclass(frozen=True)
class Spent:
    """Of an entry of the order: its items, how many are done, and processor hours, spent and estimated to come."""

    entry: str
    done: int
    items: int
    hours: float
    to_come: float | None


class Status:
    """The state of a search. Times to come follow from the measured seconds per gradient of a trial."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.protocol = queue, queue.protocol

    def lines(self) -> Iterator[str]:
        """One for each entry of the order, and the sums."""
        entries = [self._spent(entry, items) for entry, items in self.queue.entries.items()]
        for one in entries:
            yield f"{one.entry}: {one.done} of {one.items} done, {one.hours:.2f} h spent{_to_come(one.to_come)}"
        hours, known = sum(one.hours for one in entries), [one.to_come for one in entries if one.to_come is not None]
        budget = self.protocol.budget.core_hours
        yield f"in all: {hours:.2f} of {budget:g} core hours spent{_to_come(sum(known) if known else None)}"
        for unit in self._units:
            if ends := _moved(unit):
                yield f"{unit.name}: widened {ends}"

    def _spent(self, entry: str, items: list[Item]) -> Spent:
        to_come = [self._to_come(item) for item in items if not item.has_ended]
        known = [hours for hours in to_come if hours is not None]
        is_known = bool(known) or (bool(items) and not to_come)
        hours = self._hours_of_rounds() if entry == ROUNDS else sum(map(self._hours, items))
        return Spent(entry, len(items) - len(to_come), len(items), hours, sum(known) if is_known else None)

    def _hours_of_rounds(self) -> float:
        """Of all settings, also of those whose rounds are chosen."""
        rules = [Rounds(self.queue.units, setting) for setting in self.protocol.settings]
        candidates = self.protocol.rounds.candidates
        return sum(_hours_of(unit) for rule in rules for candidate in candidates for unit in rule.of(candidate))

    def _hours(self, item: Item) -> float:
        if isinstance(item, Unit):
            return _hours_of(item)
        return item.seconds / HOUR if isinstance(item, Runs) else 0.0

    def _to_come(self, item: Item) -> float | None:
        """Estimated hours; None if nothing is measured yet, or if it is not known how many trials are needed."""
        if isinstance(item, Unit):
            trials = self.protocol.trials
            of_all = trials.after_shared + (trials.shared if item.of_base is None else 0)
            left = of_all - sum(row["outcome"] != FINISHED_WITH for row in item.rows)
            return self._of_trials(item.plan.label, left)
        if isinstance(item, Final):
            amounts = item.winners.source.amounts
            factor = 1 if amounts is None else amounts.local_steps * amounts.rounds
            return self._of_trials(item.label, factor * self.protocol.training_seeds_each)
        return None

    def _of_trials(self, label: str, trials: int) -> float | None:
        seconds = self._seconds.get(label)
        if seconds is None and self._seconds_per_gradient is not None:
            seconds = self._seconds_per_gradient * self._gradients(label)
        return None if seconds is None else trials * seconds / HOUR

    @cached_property
    def _units(self) -> list[Unit]:
        units = [item for items in self.queue.entries.values() for item in items if isinstance(item, Unit)]
        for unit in units:
            unit.read()
        return units

    @cached_property
    def _seconds(self) -> dict[str, float]:
        """Mean seconds of a trial by label, of those that were trained."""
        found: dict[str, list[float]] = defaultdict(list)
        for unit in self._units:
            found[unit.plan.label] += [row["cpu_seconds"] for row in unit.rows if row["outcome"] in (TRAINED, DIVERGED)]
        return {label: statistics.fmean(seconds) for label, seconds in found.items() if seconds}

    @cached_property
    def _seconds_per_gradient(self) -> float | None:
        rates = [seconds / self._gradients(label) for label, seconds in self._seconds.items()]
        return statistics.fmean(rates) if rates else None

    def _gradients(self, label: str) -> float:
        """Gradients of a local step."""
        method = self.queue.units.grid.cell(self.queue.units.grid.main, label).runs[0].method
        return float(measured_costs(method.recipe, method.hyperparameters)["gradients"])


def _hours_of(unit: Unit) -> float:
    unit.read()
    return float(sum(row["cpu_seconds"] for row in unit.rows)) / HOUR


def _to_come(hours: float | None) -> str:
    return "" if hours is None else f", about {hours:.1f} h to come"


def _moved(unit: Unit) -> str:
    """The ranges of a base that have widened, in words; empty for other units."""
    if unit.of_base is not None or not unit.rows:
        return ""
    last = unit.read()[-1].planned.ends
    moved = {place: last[place] for place, one in unit.plan.ranges.items() if last[place] != (one.low, one.high)}
    return ", ".join(f"{place.rpartition('.')[2]} to {low:g} … {high:g}" for place, (low, high) in moved.items())
