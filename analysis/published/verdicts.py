"""The verdict on an entry of a table: `verdict` compares one reproduced mean with the published value.

The rule, for a reproduced mean m over n seeds with sample standard deviation s, and a published value v:

- reach = max(t · s / √n,  tolerance,  half a unit of the last printed digit of v)
    t: 97.5 % quantile of Student's t with n − 1 degrees of freedom, so that m ± t · s / √n is the 95 % confidence
    interval; only for n ≥ 2. tolerance: 1 point, only for accuracies (`ACCURACIES`).
- |m − v| ≤ reach: agrees.
- |m − v| > reach: differs, if there is an interval or a tolerance, or the metric is an exact count (`COUNTS`); else
  not judged.
- Without a comparison, the verdict is the first that applies: not published (no value is printed); not supported, not
  run, not analysed or diverged (no reproduced mean); not judged (the printed value is doubtful, or the paper reports a
  failed run); censored (one of the two numbers is only a bound).

`rank_correlation` compares the reproduced and the published order of the methods.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scipy import stats

from analysis.published.numbers import PublishedNumber

Missing = Literal["not supported", "not run", "not analysed", "diverged", "censored"]
"""Why an entry has no reproduced mean, in this order: the suite cannot run it; nothing was run; the runs were not
analysed, or the analysis found no value; a run diverged; a run did not reach its target."""

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
"""The plural of each verdict, in the order in which a table's foot counts them."""

CONFIDENCE = 0.95

TOLERANCE = 1.0
"""The tolerance for accuracies, in percentage points."""

ACCURACIES = {
    "test_accuracy",
    "test_accuracy_half",
    "train_accuracy",
    "corrupted_accuracy",
    "client_test_accuracy_mean",
    "client_train_accuracy_mean",
}
"""Metrics to which the tolerance applies: accuracies in percent."""

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
"""Exact counts, which are equal in all runs and so need neither interval nor tolerance."""

LEAST_RANKED = 3
"""The smallest number of methods for which a rank correlation is computed."""


@dataclass(frozen=True)
class Reproduced:
    """A reproduced result: mean and sample standard deviation (None for one seed) over `seeds` runs."""

    mean: float
    std: float | None = None
    seeds: int = 1

    @property
    def half_width(self) -> float | None:
        """Half the width of the mean's 95 % confidence interval, t · s / √n; None for one seed."""
        if self.std is None or self.seeds < 2:
            return None
        quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, self.seeds - 1))
        return quantile * self.std / math.sqrt(self.seeds)


@dataclass(frozen=True)
class Verdict:
    """A verdict; `gap` is the reproduced minus the published value, if both are numbers that can be compared."""

    kind: Kind
    gap: float | None = None

    def text(self, decimals: int = 2) -> str:
        """The verdict as a table prints it; 'differs' is followed by the gap."""
        return f"differs ({self.gap:+.{decimals}f})" if self.kind == "differs" else self.kind


def verdict(
    reproduced: Reproduced | Missing, published: PublishedNumber | None, metric: str, tolerance: float = TOLERANCE
) -> Verdict:
    """The verdict on one entry of a table, by the rule in this module's docstring.

    `reproduced`: the result, or why there is none; `published`: None if the paper prints no number; `metric`: decides
    whether the tolerance applies, empty for quantities that are not a metric themselves, such as gains and multiples.
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
        gap = reproduced.mean - published.value
        bounds = [reproduced.half_width, tolerance if metric in ACCURACIES else None]
        reach = max(0.5 * 10.0**-published.decimals, *(bound or 0.0 for bound in bounds))
        if abs(gap) <= reach or math.isclose(abs(gap), reach):
            return Verdict("agrees", gap)
        return Verdict("differs" if metric in COUNTS or bounds != [None, None] else "not judged", gap)
    return Verdict(kind)


def rule(tolerance: float = TOLERANCE) -> str:
    """The rule of `verdict` in words, for a table's foot."""
    points = f"{tolerance:g} point{'' if tolerance == 1 else 's'}"
    return (
        "Agrees: the published value is within the 95 % confidence interval of the reproduced mean (Student's t, two "
        f"or more seeds), within {points} of it (accuracies), or equal to it in the printed decimals. Differs: it is "
        "not; the gap is the reproduced minus the published value. Not judged: the published value is doubtful or a "
        "failed run, the runs have other settings than the paper's, or there is neither an interval nor a tolerance "
        "(exact counts need none)."
    )


def counts(verdicts: Iterable[Verdict]) -> str:
    """The number of verdicts of each kind, such as '12 agree, 3 differ, 5 not run'."""
    found = Counter(verdict.kind for verdict in verdicts)
    parts = (f"{found[kind]} {kind if found[kind] == 1 else plural}" for kind, plural in PLURALS.items() if found[kind])
    return ", ".join(parts) or "no cells"


class RankCorrelation(NamedTuple):
    """Kendall's tau-b, and the number of methods from which it is computed."""

    tau: float
    methods: int


def rank_correlation(
    reproduced: Mapping[str, float | None], published: Mapping[str, float | None]
) -> RankCorrelation | None:
    """Kendall's tau-b between two orders of the methods that have both numbers; 1: equal, -1: reversed.

    None for fewer than three methods, or if one side has only equal numbers.
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
