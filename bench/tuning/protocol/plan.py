"""Which trials come next: pure functions of the protocol and of the results so far.

A base:    base      the experiment's values, and draws in the ranges
           widen k   the winner at new ends of ranges, if it lies at an end, else draws around the best two
           refine    draws around the best two
           confirm base            the best so far with a second seed: its methods take the best two of them
           own, further            draws around the best two, as many as a method's own trials
           confirm   the best of the others with a second seed
A method:  neutral   the base's confirmed best two, at which the method is its base: they are taken, not trained again
           points    the other points of its own value at these two
           beyond    the value beyond the last point if that is the best, else the means of neighbours, or draws
           further   other values at the best so far, or draws around the best two
           confirm   the best of the others with a second seed

The winner is the best of the confirmed trials: at the rates that win, a run with another seed may fail.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scipy.stats import qmc

from fedflat.bench.numerics.streams import numpy_stream
from fedflat.bench.tuning.protocol.schema import TIMES_DISTANCE, BoundedRange, Protocol, SweptValues
from fedflat.bench.tuning.protocol.trial_results import (
    Ends,
    Planned,
    TrialResult,
    Values,
    best,
    confirmed,
    distinct,
    unconfirmed,
)
from fedflat.bench.tuning.trials import COORDINATES

NEUTRAL = "neutral"
"""The stage of a method whose trials are its base's."""

CONFIRM = "confirm"
"""The last stage, in which the best trials are trained with a second seed."""


@dataclass(frozen=True)
class Plan(ABC):
    """The trials of a method with a tuning seed.

    `ranges`: those of the base by place; `start`: the experiment's values at all places that are searched.
    """

    protocol: Protocol
    label: str
    seed: int
    ranges: Mapping[str, BoundedRange]
    start: Values

    @property
    @abstractmethod
    def stages(self) -> tuple[str, ...]:
        """The stages in their order."""

    @abstractmethod
    def batch(self, stage: str, results: Sequence[TrialResult], of_base: Sequence[TrialResult]) -> list[Planned]:
        """The trials of a stage, given the results of all earlier ones, and the shared ones of the base."""

    def next_batch(self, results: Sequence[TrialResult], of_base: Sequence[TrialResult] = ()) -> list[Planned] | None:
        """The trials of the first stage without results; None if there is none. Stages are stored as a whole."""
        taken = {result.planned.stage for result in results}
        missing = next((stage for stage in self.stages if stage not in taken), None)
        return None if missing is None else self.batch(missing, results, of_base)

    def drawn(self, stage: str, count: int) -> list[list[float]]:
        """Points of a scrambled Sobol sequence in the unit cube; each method and stage has its own scramble."""
        key = numpy_stream(self.seed, f"search {self.label} {stage}").integers(2**63)
        points = qmc.Sobol(max(COORDINATES, len(self.ranges)), seed=int(key))
        return points.random_base2(max(0, count - 1).bit_length()).tolist()[:count]

    def in_ranges(self, stage: str, count: int) -> list[Planned]:
        """The experiment's values, and draws in the ranges as they begin."""
        ends = {place: (float(one.low or 0), float(one.high or 0)) for place, one in self.ranges.items()}
        found = [Planned(stage, self.start, ends)]
        for point in self.drawn(stage, count - 1):
            own = {
                place: _at(one, ends[place], at) for (place, one), at in zip(self.ranges.items(), point, strict=False)
            }
            found.append(Planned(stage, {**self.start, **own}, ends))
        return found

    def around(self, stage: str, centres: Sequence[TrialResult], count: int, ends: Ends) -> list[Planned]:
        """Draws around the centres in turn, which keep those values that have no range."""
        refine = self.protocol.refine
        found = []
        for k, point in enumerate(self.drawn(stage, count)):
            centre = centres[k % len(centres)]
            own = {
                place: _at(
                    one, ends[place], _share(one, ends[place], centre.values[place]) + refine.share * (2 * at - 1)
                )
                for (place, one), at in zip(self.ranges.items(), point, strict=False)
            }
            found.append(Planned(stage, {**centre.values, **own}, ends))
        return found

    def again(self, stage: str, results: Sequence[TrialResult]) -> list[Planned]:
        """The best trials that were trained with one seed only, with the second seed."""
        chosen = unconfirmed(results, self.protocol.trials.confirm)
        return [Planned(stage, one.values, results[-1].planned.ends, again=one.number) for one in chosen]


@dataclass(frozen=True)
class OfRounds(Plan):
    """The trials by which rounds are chosen."""

    @property
    def stages(self) -> tuple[str, ...]:
        """One."""
        return ("rounds",)

    def batch(self, stage: str, results: Sequence[TrialResult], of_base: Sequence[TrialResult]) -> list[Planned]:
        """The experiment's values, and draws."""
        return self.in_ranges(stage, self.protocol.rounds.tried.trials)


@dataclass(frozen=True)
class OfBase(Plan):
    """The trials of a base."""

    @property
    def stages(self) -> tuple[str, ...]:
        """See above."""
        return (*self.shared, "own", "further", CONFIRM)

    @property
    def shared(self) -> tuple[str, ...]:
        """The stages whose results its methods take."""
        return ("base", *self.widening, "refine", "confirm base")

    @property
    def widening(self) -> tuple[str, ...]:
        """The stages in which ranges widen."""
        return tuple(f"widen {k + 1}" for k in range(self.protocol.widen.times))

    def batch(self, stage: str, results: Sequence[TrialResult], of_base: Sequence[TrialResult]) -> list[Planned]:
        """See above."""
        trials = self.protocol.trials
        if stage == "base":
            return self.in_ranges(stage, trials.base)
        ends = results[-1].planned.ends
        if stage in self.widening:
            return self._widened(stage, results, ends)
        if stage.startswith(CONFIRM):
            return self.again(stage, results)
        counts = {"refine": trials.refine, "own": trials.own, "further": trials.further}
        around = self.protocol.refine.around
        centres = confirmed(results, around) or best(results, around)
        return self.around(stage, centres, counts[stage], ends)

    def _widened(self, stage: str, results: Sequence[TrialResult], ends: Ends) -> list[Planned]:
        [winner], count = best(results, 1), self.protocol.widen.trials
        moved = {place: new for place in self.ranges if (new := self._moved(place, winner, ends[place])) is not None}
        if not moved:
            return self.around(stage, best(results, self.protocol.refine.around), count, ends)
        wider = {**ends, **{place: new.ends for place, new in moved.items()}}
        found = []
        for k in range(count):  # evenly from the winner to the new end
            share = (k + 1) / count
            own = {place: new.at(share, self.ranges[place]) for place, new in moved.items()}
            found.append(Planned(stage, {**winner.values, **own}, wider))
        return found

    def _moved(self, place: str, winner: TrialResult, ends: tuple[float, float]) -> "_Moved | None":
        """The new end next to the winner, if the winner lies at an end that can move."""
        one, widen = self.ranges[place], self.protocol.widen
        low, high = ends
        share = _share(one, ends, winner.values[place])
        half = (high - low) / 2
        if share <= widen.near and low > one.bound[0]:
            end = max(low / widen.factor if one.log else low - half, one.bound[0])
            return _Moved(winner.values[place], end, (end, high))
        if share >= 1 - widen.near and high < one.bound[1]:
            end = min(high * widen.factor if one.log else high + half, one.bound[1])
            return _Moved(winner.values[place], end, (low, end))
        return None


@dataclass(frozen=True)
class _Moved:
    """A range whose end has moved away from the winner's value."""

    value: float
    end: float
    ends: tuple[float, float]

    def at(self, share: float, one: BoundedRange) -> float:
        """The value at this share of the way from the winner to the new end, on the range's scale."""
        start, end = _share(one, self.ends, self.value), _share(one, self.ends, self.end)
        return _at(one, self.ends, start + share * (end - start))


@dataclass(frozen=True)
class OfMethod(Plan):
    """The trials of a method with a base. `places`: of its values by name."""

    swept: SweptValues
    places: Mapping[str, str]

    @property
    def stages(self) -> tuple[str, ...]:
        """See above."""
        return (NEUTRAL, "points", "beyond", "further", CONFIRM)

    def batch(self, stage: str, results: Sequence[TrialResult], of_base: Sequence[TrialResult]) -> list[Planned]:
        """See above."""
        if stage == NEUTRAL:
            return self._taken(of_base)
        if stage == CONFIRM:
            return self.again(stage, results)
        ends = results[-1].planned.ends
        if stage == "points":
            neutral = distinct([result for result in results if result.planned.stage == NEUTRAL])
            points = self.swept.values[1:]
            return [self._with(stage, one, {self.swept.value: point}) for one in neutral for point in points]
        if stage == "beyond":
            return self._beyond(stage, results, ends)
        [winner] = best(results, 1)
        if self.swept.further:
            return [self._with(stage, winner, change) for change in self.swept.further]
        return self.around(stage, best(results, self.protocol.refine.around), self.protocol.trials.further, ends)

    def _taken(self, of_base: Sequence[TrialResult]) -> list[Planned]:
        """The base's best two trials, and then their runs with the second seed."""
        chosen = confirmed(of_base, self.protocol.refine.around)
        again = {result.planned.again: result for result in of_base}
        first = [Planned(NEUTRAL, self._neutral(one), one.planned.ends, one.number) for one in chosen]
        return [
            *first,
            *(
                replace(planned, taken=again[one.number].number, again=k)
                for k, (one, planned) in enumerate(zip(chosen, first, strict=True))
            ),
        ]

    def _neutral(self, one: TrialResult) -> Values:
        given = {**self.swept.fixed, self.swept.value: self.swept.values[0]}
        own = {self.places[name]: _plain(value) for name, value in given.items()}
        return {**{place: one.values[place] for place in self.ranges}, **own}

    def _with(self, stage: str, one: TrialResult, change: Mapping[str, Any]) -> Planned:
        """The trial's values with changes, of which multiples of the clients' distance become numbers."""
        own = {self.places[name]: _plain(_number(given, one)) for name, given in change.items()}
        return Planned(stage, {**one.values, **own}, one.planned.ends)

    def _beyond(self, stage: str, results: Sequence[TrialResult], ends: Ends) -> list[Planned]:
        [winner], count = best(results, 1), self.protocol.widen.trials
        values, place = self.swept.values, self.places[self.swept.value]
        position = [_plain(value) for value in values].index(winner.values[place])
        if self.swept.has_scale and position < len(values) - 1:
            return [
                self._with(stage, winner, {self.swept.value: value}) for value in _between(values, position)[:count]
            ]
        if self.swept.has_scale and self.swept.beyond is not None:
            neutral = distinct([result for result in results if result.planned.stage == NEUTRAL])[:count]
            return [self._with(stage, one, {self.swept.value: self.swept.beyond}) for one in neutral]
        same = [result for result in results if result.values[place] == winner.values[place]]
        return self.around(stage, best(same, self.protocol.refine.around), count, ends)


def _number(given: Any, one: TrialResult) -> Any:
    """The value, or a multiple of the clients' distance in a trial as a number of four digits."""
    if isinstance(given, Mapping) and TIMES_DISTANCE in given:
        return float(f"{given[TIMES_DISTANCE] * (one.distance or 0.0):.4g}")
    return given


def _between(values: Sequence[float], position: int) -> list[float]:
    """Two values next to a point that is not the last one: the geometric means with its neighbours.

    Next to zero, half of the first point above it, and a quarter of it.
    """
    if position == 0:
        return [_digits(values[1] / 2), _digits(values[1] / 4)]
    below = values[position] / 2 if values[position - 1] == 0 else math.sqrt(values[position - 1] * values[position])
    return [_digits(below), _digits(math.sqrt(values[position] * values[position + 1]))]


def _share(one: BoundedRange, ends: tuple[float, float], value: float) -> float:
    """Where a value lies in a range with these ends, on the range's scale: 0 at the low end, 1 at the high one."""
    low, high, at = (math.log(number) if one.log else number for number in (*ends, value))
    return (at - low) / (high - low)


def _at(one: BoundedRange, ends: tuple[float, float], share: float) -> float:
    """The value at a share, which may lie outside the ends, but not outside the bound; three digits."""
    low, high = ends
    value = low * (high / low) ** share if one.log else low + share * (high - low)
    return min(max(_digits(value), one.bound[0]), one.bound[1])


def _digits(value: float) -> float:
    return float(f"{value:.3g}")


def _plain(value: Any) -> Any:
    """A value as a run's configuration has it."""
    return str(value) if isinstance(value, float) and math.isinf(value) else value
