"""The verdict on an entry of a table: `verdict` compares the values of its seeds with the published number.

The first of these that applies is the verdict:

- not published: no number is printed
- not run, not analysed or diverged: there is no reproduced mean
- not judged: the printed number is doubtful or a failed run, or the metric has no margin
- censored: one of the two numbers is only a bound
- agrees, differs or inconclusive: the rule of `fedflat.analysis.verdicts.equivalence`. Margins in percent are compared
  with the gap of the logarithms. Exact quantities, which are equal in all runs, agree if they are equal in the printed
  decimals
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedflat.analysis.published.numbers import PublishedNumber
from fedflat.analysis.verdicts.equivalence import Noise, agrees, differs, seeds_to_decide
from fedflat.analysis.verdicts.margins import Margin

Missing = Literal["not run", "not analysed", "diverged", "censored"]
"""Why an entry has no reproduced mean, in this order: nothing was run; the runs were not analysed, or the analysis
found no value; a run diverged; a run did not reach its target."""

Kind = Literal["agrees", "differs", "inconclusive", "not judged", "not published", Missing]

PLURALS: dict[Kind, str] = {
    "agrees": "agree",
    "differs": "differ",
    "inconclusive": "inconclusive",
    "not run": "not run",
    "not analysed": "not analysed",
    "diverged": "diverged",
    "censored": "censored",
    "not judged": "not judged",
    "not published": "not published",
}
"""The plural of each verdict, in the order in which a table's foot counts them."""

ONE_SEED, PAPERS_NOISE = "one seed", "paper's noise"
"""Why an entry is inconclusive whatever the number of seeds: no deviation is known; no number of seeds decides."""


@dataclass(frozen=True)
class Gap:
    """The gap between a reproduced and a published number, and what decided about it.

    `value`: reproduced − published, or the logarithm of their ratio if `is_ratio`; `margin`: on the same scale;
    `error`: standard error of the value with `df` degrees of freedom, None if no deviation is known; `seeds`: the
    number of seeds that would decide, only for inconclusive entries.
    """

    value: float
    margin: float
    is_ratio: bool = False
    error: float | None = None
    df: float | None = None
    seeds: int | None = None

    def text(self, decimals: int) -> str:
        """The gap with its sign, as a difference or in percent of the published number."""
        return f"{100 * math.expm1(self.value):+.0f} %" if self.is_ratio else f"{self.value:+.{decimals}f}"


@dataclass(frozen=True)
class Verdict:
    """A verdict; `why`: the reason, for entries that are not judged or inconclusive."""

    kind: Kind
    why: str = ""
    gap: Gap | None = None

    def text(self, decimals: int = 2) -> str:
        """The verdict as a table prints it, with the gap or with what would decide."""
        if self.kind == "differs" and self.gap is not None:
            return f"differs ({self.gap.text(decimals)})"
        return f"inconclusive ({self.why})" if self.kind == "inconclusive" else self.kind


def verdict(
    reproduced: Sequence[float] | Missing,
    published: PublishedNumber | None,
    margin: Margin,
    noise: Noise | None,
    unit: float = 1,
) -> Verdict:
    """The verdict on one entry of a table, by the rule in this module's docstring.

    `reproduced`: one value per seed, or why there is none; `published`: None if the paper prints no number; `noise`: of
    the entry's column, on logarithms if the margin is in percent; None if no deviation is known; `unit`: the number by
    which the column divides its values.
    """
    if published is None or (published.value is None and not published.failed):
        return Verdict("not published")
    if isinstance(reproduced, str) and reproduced != "censored":
        return Verdict(reproduced)
    if why := _not_judged(reproduced, published, margin):
        return Verdict("not judged", why)
    if published.value is None or published.censored or isinstance(reproduced, str):
        return Verdict("censored")
    width = margin.width(published, unit)
    if margin.percent is None:
        return _decided(reproduced, published.value, width, margin, noise)
    return _decided([math.log(value) for value in reproduced], math.log(published.value), width, margin, noise)


def _not_judged(reproduced: Sequence[float] | Missing, published: PublishedNumber, margin: Margin) -> str:
    """Why an entry with a printed number is not judged; empty if it is."""
    if published.value is None:
        return "failed in the paper"
    if published.doubtful:
        return "doubtful in print"
    too_small = published.value <= published.half_unit or (not isinstance(reproduced, str) and min(reproduced) <= 0)
    if margin.percent is not None and too_small:
        return "a ratio needs positive numbers"
    return margin.not_judged or ""


def _decided(values: Sequence[float], published: float, width: float, margin: Margin, noise: Noise | None) -> Verdict:
    """Agrees, differs or inconclusive; all numbers are logarithms if the margin is in percent."""
    gap = Gap(math.fsum(values) / len(values) - published, width, margin.percent is not None)
    if margin.exact:
        return Verdict("agrees" if agrees(gap.value, 0, 1, width) else "differs", gap=gap)
    if noise is None:
        return Verdict("inconclusive", ONE_SEED, gap)
    error, df = noise.error(len(values)), noise.df(len(values))
    gap = replace(gap, error=float(error), df=float(df))
    if agrees(gap.value, error, df, width):
        return Verdict("agrees", gap=gap)
    if differs(gap.value, error, df, width):
        return Verdict("differs", gap=gap)
    seeds = seeds_to_decide(gap.value, width, noise)
    why = PAPERS_NOISE if seeds is None else f"needs {seeds} seeds"
    return Verdict("inconclusive", why, replace(gap, seeds=seeds))


def counts(verdicts: Iterable[Verdict]) -> str:
    """The number of verdicts of each kind, such as '12 agree, 3 differ, 5 not judged (doubtful in print)'."""
    given = list(verdicts)
    found = Counter(one.kind for one in given)
    reasons = Counter(one.why for one in given if one.kind == "not judged")
    several = len(reasons) > 1
    why = ", ".join(f"{count}: {reason}" if several else reason for reason, count in reasons.most_common())
    after = {"not judged": f" ({why})" if why else ""}
    parts = (
        f"{found[kind]} {kind if found[kind] == 1 else plural}{after.get(kind, '')}"
        for kind, plural in PLURALS.items()
        if found[kind]
    )
    return ", ".join(parts) or "no cells"
