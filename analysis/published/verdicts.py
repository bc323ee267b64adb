"""What a reproduced number says about the published one: a verdict by one stated rule, and how methods rank."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scipy import stats

from analysis.published.numbers import PublishedNumber

Missing = Literal["not supported", "not run", "not analysed", "diverged", "censored"]
"""Why a cell has no reproduced number: the suite cannot run it, nothing was run, runs were not analysed or have no
value, a run diverged, a run did not reach its target."""

Kind = Literal["agrees", "differs", "not judged", "not published", Missing]

PLURALS: dict[Kind, str] = {
    "agrees": "agree",
    "differs": "differ",
    "not supported": "not supported",
    "not run": "not run",
    "not analysed": "not analysed",
    "diverged": "diverged",
    "censored": "censored",
    "not judged": "not judged",
    "not published": "not published",
}
"""Each verdict as it is said of several cells, in the order in which they are counted."""

CONFIDENCE = 0.95

TOLERANCE = 1.0
"""Points of accuracy."""

ACCURACIES = {
    "test_accuracy",
    "test_accuracy_half",
    "train_accuracy",
    "corrupted_accuracy",
    "client_test_accuracy_mean",
    "client_train_accuracy_mean",
}
"""What the tolerance is for: accuracies in percent."""

COUNTS = {
    "downloads_per_round",
    "uploads_per_round",
    "transmissions_per_round",
    "gradients_per_step",
    "client_state",
    "client_storage",
    "client_models",
    "server_state",
}
"""What is exact without an interval: every run counts the same."""

LEAST_RANKED = 3
"""Fewer methods have no rank correlation."""


@dataclass(frozen=True)
class Reproduced:
    """A cell's result: mean and sample standard deviation (None for one seed) over `seeds` runs."""

    mean: float
    std: float | None = None
    seeds: int = 1

    @property
    def half_width(self) -> float | None:
        """Half of the mean's 95 % interval (Student's t, seeds − 1 degrees of freedom); None for one seed."""
        if self.std is None or self.seeds < 2:
            return None
        quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, self.seeds - 1))
        return quantile * self.std / math.sqrt(self.seeds)


@dataclass(frozen=True)
class Verdict:
    """A verdict; `gap` is reproduced less published, where the two can be compared."""

    kind: Kind
    gap: float | None = None

    def text(self, decimals: int = 2) -> str:
        """For a table's cell: a difference with its gap."""
        return f"differs ({self.gap:+.{decimals}f})" if self.kind == "differs" else self.kind


def verdict(
    reproduced: Reproduced | Missing, published: PublishedNumber | None, metric: str, tolerance: float = TOLERANCE
) -> Verdict:
    """The verdict on one cell; `rule()` says how in words.

    *Agrees*: the published value lies within the 95 % confidence interval of the reproduced mean, or within `tolerance`
    of it if the metric is an accuracy in percent, or is the mean in as many decimals as are printed. *Differs*: it does
    not. Neither is said of what is not published, run or analysed, has diverged, is a bound on either side, is doubtful
    in print or a failure there. One seed's other metrics have neither interval nor tolerance: they agree if equal, and
    differ only if they are counts, which are exact.
    """
    kind: Kind
    if published is None or (published.value is None and not published.failed):
        kind = "not published"
    elif not isinstance(reproduced, Reproduced) and reproduced != "censored":
        kind = reproduced
    elif published.value is None or published.doubtful:
        kind = "not judged"
    elif published.censored or not isinstance(reproduced, Reproduced):
        kind = "censored"
    else:
        allowed = tolerance if metric in ACCURACIES else None
        return _judged(reproduced, published.value, published.decimals, allowed, exact=metric in COUNTS)
    return Verdict(kind)


def _judged(reproduced: Reproduced, value: float, decimals: int, tolerance: float | None, *, exact: bool) -> Verdict:
    gap, interval = reproduced.mean - value, reproduced.half_width
    reach = max(0.5 * 10.0**-decimals, interval or 0.0, tolerance or 0.0)
    if abs(gap) <= reach or math.isclose(abs(gap), reach):
        return Verdict("agrees", gap)
    return Verdict("differs" if exact or interval is not None or tolerance is not None else "not judged", gap)


def rule(tolerance: float = TOLERANCE) -> str:
    """The rule of `verdict`, for a caption."""
    points = f"{tolerance:g} point{'' if tolerance == 1 else 's'}"
    return (
        "Agrees: the published value is within the 95 % confidence interval of the reproduced mean (Student's t, two "
        f"or more seeds), within {points} of it (accuracies), or equal to it in the printed decimals; differs: it is "
        "not, with the gap, reproduced less published; not judged: the published value is doubtful or a failure, the "
        "runs have other settings than the paper's, or there is neither interval nor tolerance, which counts, "
        "being exact, do not need."
    )


def counts(verdicts: Iterable[Verdict]) -> str:
    """How many there are of each kind, such as '12 agree, 3 differ, 5 not run'."""
    found = Counter(verdict.kind for verdict in verdicts)
    parts = (f"{found[kind]} {kind if found[kind] == 1 else plural}" for kind, plural in PLURALS.items() if found[kind])
    return ", ".join(parts) or "no cells"


class RankCorrelation(NamedTuple):
    """Kendall's tau-b, and of how many methods."""

    tau: float
    methods: int


def rank_correlation(
    reproduced: Mapping[str, float | None], published: Mapping[str, float | None]
) -> RankCorrelation | None:
    """How alike two orders of methods are, by the numbers of those that have both; 1: equal, -1: reversed.

    None for fewer than three methods, or if all are equal on one side.
    """
    both = [
        (ours, theirs)
        for method, ours in reproduced.items()
        if ours is not None and (theirs := published.get(method)) is not None
    ]
    if len(both) < LEAST_RANKED:
        return None
    tau = float(stats.kendalltau(*zip(*both, strict=True)).statistic)
    return None if math.isnan(tau) else RankCorrelation(tau, len(both))
