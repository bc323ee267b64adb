"""The order of the methods, seed by seed, compared with the printed order: pairs of methods, and Kendall's τ.

Runs of one seed share the partition, the initial model and the schedule of clients, so the difference of two methods
within a seed is free of the noise of these.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from fedflat.analysis.published.numbers import PublishedNumber

LEAST_PAIRS = 3
"""The smallest number of pairs for which Kendall's τ is computed: that of three methods."""

CONFIDENCE = 0.95

_ROUNDING = 1e-9  # values of τ that differ by less are equal

BySeed = Mapping[str, Mapping[int, float]]
"""The values of several methods, by method and seed."""


class Pair(NamedTuple):
    """Two methods of a column, the one with the larger printed number first.

    `seeds`: number of seeds in which both have a value; `kept`: of these, where the first one is larger, as printed.
    """

    larger: str
    smaller: str
    seeds: int
    kept: int


class PairCounts(NamedTuple):
    """The number of pairs in the printed order in all seeds, in some of them, and in none."""

    in_all: int
    in_some: int
    in_none: int

    def __str__(self) -> str:
        return f"{self.in_all} / {self.in_some} / {self.in_none}"

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> "PairCounts":
        """The counts of these pairs."""
        kept = [(pair.kept == pair.seeds, pair.kept == 0) for pair in pairs]
        in_all, in_none = sum(all_ for all_, _ in kept), sum(none for _, none in kept)
        return cls(in_all, len(kept) - in_all - in_none, in_none)


class Tau(NamedTuple):
    """Kendall's τ_b of the reproduced and the printed order, its mean over seeds with the ends of a 95 % interval.

    1: equal orders, −1: reversed. `low` and `high` are None for one seed, and if τ is the same in all seeds, because
    such a sample says nothing about its noise. `methods`: the number of compared methods.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int
    methods: int

    def __str__(self) -> str:
        numbers = [f"{round(number, 2) + 0.0:.2f}" for number in (self.mean, self.low, self.high) if number is not None]
        return numbers[0] if len(numbers) == 1 else f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"


@dataclass(frozen=True)
class OrderOfMethods:
    """The reproduced order of a column's methods, compared with the printed one."""

    pairs: tuple[Pair, ...]
    tau: Tau | None

    @property
    def counts(self) -> PairCounts:
        """The counts over all pairs."""
        return PairCounts.of(self.pairs)

    def of_method(self, method: str) -> PairCounts:
        """The counts over a method's pairs."""
        return PairCounts.of(pair for pair in self.pairs if method in pair[:2])


def order(
    reproduced: BySeed, printed: Mapping[str, PublishedNumber], groups: Mapping[str, object] | None = None
) -> OrderOfMethods | None:
    """Compare the methods that have values and a printed number; None if there is no pair.

    `groups`: by method, the group within which it is compared; None: all methods are compared.
    """
    values = {m: n.value for m, n in printed.items() if n.value is not None and reproduced.get(m)}
    comparable = [(a, b) for a, b in itertools.combinations(values, 2) if groups is None or groups[a] == groups[b]]
    found = tuple(_pairs(reproduced, values, comparable))
    return OrderOfMethods(found, _tau(reproduced, values, comparable)) if found else None


def _pairs(reproduced: BySeed, printed: Mapping[str, float], comparable: Iterable[tuple[str, str]]) -> Iterator[Pair]:
    """All comparable pairs with different printed numbers and a common seed.

    The order of two printed numbers is certain if they differ at all: rounding can make numbers equal, but it cannot
    exchange them.
    """
    for a, b in comparable:
        seeds = reproduced[a].keys() & reproduced[b].keys()
        if printed[a] != printed[b] and seeds:
            larger, smaller = (a, b) if printed[a] > printed[b] else (b, a)
            kept = sum(reproduced[larger][seed] > reproduced[smaller][seed] for seed in seeds)
            yield Pair(larger, smaller, len(seeds), kept)


def _tau(reproduced: BySeed, printed: Mapping[str, float], comparable: Sequence[tuple[str, str]]) -> Tau | None:
    """Kendall's τ_b over the comparable pairs, in each seed that all methods have; None for fewer than three pairs or
    without such a seed."""
    if len(comparable) < LEAST_PAIRS:
        return None
    methods = list(dict.fromkeys(itertools.chain.from_iterable(comparable)))
    seeds = set.intersection(*(set(reproduced[method]) for method in methods))
    theirs = [printed[a] - printed[b] for a, b in comparable]
    by_seed = [
        _tau_b([reproduced[a][seed] - reproduced[b][seed] for a, b in comparable], theirs) for seed in sorted(seeds)
    ]
    taus = np.array([tau for tau in by_seed if not math.isnan(tau)])
    if not len(taus):
        return None
    mean, low, high = float(taus.mean()), None, None
    if np.ptp(taus) > _ROUNDING:
        quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(taus) - 1))
        half = quantile * float(taus.std(ddof=1)) / math.sqrt(len(taus))
        low, high = max(-1.0, mean - half), min(1.0, mean + half)
    return Tau(mean, low, high, len(taus), len(methods))


def _tau_b(ours: list[float], theirs: list[float]) -> float:
    """Kendall's τ_b from the differences of pairs; NaN if one side has only equal numbers."""
    a, b = np.sign(ours), np.sign(theirs)
    untied = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / untied if untied else math.nan
