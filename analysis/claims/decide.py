"""Whether a claim holds: differences of cells' values, seed by seed, and how a claim is composed of them.

- A `Contrast` is a weighted sum of values (or of their logarithms) of cells, such as the accuracy of FedGF minus that
  of FedSAM in one setting, with the `Region` in which a claim says it is.
- `AtLeast` says how many of several parts must hold: all of them, most, or any one.

A contrast of runs has one value for each seed that all its cells have. It holds if the 1 - α confidence interval of its
mean (Student's t) lies in the region, fails if the interval lies outside, else it is undecided. If m of n parts must
hold, the parts are decided at α / (n - m + 1) to say that the claim holds, and at α / m to say that it fails. Then
either is wrong in at most 5 % of cases, however many parts there are. For example, if all n must hold, a false claim
has a false part, which is said to hold in at most α of the cases; and a true claim has n parts, each of which is said
to fail in at most α / n of the cases.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from scipy import stats

from fedflat.bench.experiments.address import CellAddress

Outcome = Literal["holds", "fails", "undecided"]

ALPHA = 0.05

ROUNDING = 1e-9
"""Values that differ by less are equal."""

Values = Mapping[CellAddress, Mapping[int, float]]
"""A value per seed, by cell; infinite for a run that diverged, or that did not reach its target."""


@dataclass(frozen=True)
class Region:
    """The values of a contrast for which a claim holds; `strict`: without its bounds."""

    low: float = -math.inf
    high: float = math.inf
    strict: bool = False

    def margin(self, value: float) -> float:
        """The distance to the nearest bound; negative outside."""
        above = math.inf if self.low == -math.inf else value - self.low
        below = math.inf if self.high == math.inf else self.high - value
        return min(above, below)

    def has(self, low: float, high: float) -> bool:
        """Whether the interval from `low` to `high` lies in the region."""
        least = min(self.margin(low), self.margin(high))
        return least > ROUNDING if self.strict else least >= -ROUNDING

    def excludes(self, low: float, high: float) -> bool:
        """Whether the interval lies outside of the region."""
        return high < self.low or low > self.high or (low == high and not self.has(low, high))


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of cells' values, or of their logarithms (`log`), and the region in which a claim says it is.

    `name` says what it is.
    """

    terms: tuple[tuple[CellAddress, float], ...]
    region: Region
    name: str
    log: bool = False

    @property
    def cells(self) -> tuple[CellAddress, ...]:
        """The cells that it needs."""
        return tuple(cell for cell, _ in self.terms)

    def by_seed(self, values: Values) -> list[float]:
        """Its value for each seed that all its cells have, in the order of seeds."""
        known = [values.get(cell, {}) for cell in self.cells]
        seeds = sorted(set(known[0]).intersection(*known[1:]))
        return [self._sum([of_cell[seed] for of_cell in known]) for seed in seeds]

    def _sum(self, values: Sequence[float]) -> float:
        terms = zip((weight for _, weight in self.terms), values, strict=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(sum(weight * (np.log(value) if self.log else np.float64(value)) for weight, value in terms))


@dataclass(frozen=True)
class AtLeast:
    """At least `least` of the parts hold."""

    least: int
    parts: tuple["Statement", ...]

    @property
    def cells(self) -> tuple[CellAddress, ...]:
        """The cells that its parts need, each once."""
        return tuple(dict.fromkeys(cell for part in self.parts for cell in part.cells))


Statement = Contrast | AtLeast


def every(parts: Sequence[Statement]) -> Statement:
    """All parts hold."""
    return parts[0] if len(parts) == 1 else AtLeast(len(parts), tuple(parts))


@dataclass(frozen=True)
class Decision:
    """The outcome of a statement, and the contrast that decides it.

    Of m parts that must hold, it is the one with the m-th largest distance from the bounds, among those with the same
    outcome as the statement. If numbers are missing, it is the one that would decide if their parts held.

    `value`, and `interval` with 95 % confidence, are those of this contrast; None if they cannot be computed. `seeds`:
    how many it has.
    """

    outcome: Outcome
    contrast: Contrast
    value: float | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 0

    @property
    def margin(self) -> float:
        """The distance of the value to the nearest bound of the region."""
        return math.nan if self.value is None else self.contrast.region.margin(self.value)


@dataclass(frozen=True)
class ErrorLevels:
    """The probabilities of error that are allowed for the outcomes 'holds' and 'fails'."""

    holds: float = ALPHA
    fails: float = ALPHA


def decide(statement: Statement, values: Values, *, exact: bool, levels: ErrorLevels = ErrorLevels()) -> Decision:
    """Whether the statement holds, by the rule in this module's docstring.

    `exact`: the values have no error, such as printed numbers and counts, so that one value decides.
    """
    if isinstance(statement, Contrast):
        return _of_contrast(statement, values, levels, exact=exact)
    n, m = len(statement.parts), statement.least
    inner = ErrorLevels(levels.holds / (n - m + 1), levels.fails / m)
    found = [decide(part, values, exact=exact, levels=inner) for part in statement.parts]
    outcomes = [finding.outcome for finding in found]
    known = sorted((finding for finding in found if not math.isnan(finding.margin)), key=lambda f: -f.margin)
    outcome: Outcome = "undecided"
    if outcomes.count("holds") >= m:
        outcome = "holds"
        shown = [finding for finding in known if finding.outcome == outcome][m - 1]
    elif outcomes.count("fails") > n - m:
        outcome = "fails"
        shown = [finding for finding in known if finding.outcome == outcome][m - n - 1]
    else:
        shown = known[max(len(known) - (n - m) - 1, 0)] if known else found[0]
    return Decision(outcome, shown.contrast, shown.value, shown.interval, shown.seeds)


def _of_contrast(contrast: Contrast, values: Values, levels: ErrorLevels, *, exact: bool) -> Decision:
    sample, region = contrast.by_seed(values), contrast.region
    if not sample or any(math.isnan(value) for value in sample):
        return Decision("undecided", contrast, seeds=len(sample))
    mean = math.fsum(sample) / len(sample) if all(map(math.isfinite, sample)) else sample[0]
    if exact:
        bounds = {alpha: (min(sample), max(sample)) for alpha in (ALPHA, levels.holds, levels.fails)}
    elif len(sample) > 1 and all(map(math.isfinite, sample)):
        bounds = {alpha: interval(sample, alpha) for alpha in (ALPHA, levels.holds, levels.fails)}
    else:
        return Decision("undecided", contrast, mean, seeds=len(sample))
    outcome: Outcome = "undecided"
    if region.has(*bounds[levels.holds]):
        outcome = "holds"
    elif region.excludes(*bounds[levels.fails]):
        outcome = "fails"
    return Decision(outcome, contrast, mean, bounds[ALPHA], len(sample))


def interval(sample: Sequence[float], alpha: float = ALPHA) -> tuple[float, float]:
    """The 1 - α confidence interval of the mean of at least two values, by Student's t."""
    n, mean = len(sample), float(np.mean(sample))
    half = float(_quantile(1 - alpha / 2, n - 1) * np.std(sample, ddof=1) / math.sqrt(n))
    return mean - half, mean + half


@cache
def _quantile(probability: float, df: int) -> float:
    """A quantile of Student's t; SciPy takes longer for it than everything else here."""
    return float(stats.t.ppf(probability, df))
