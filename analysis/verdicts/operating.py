"""How often verdicts are wrong: the rule and the one before it on simulated runs, as tables of docs/published.md.

`python -m analysis.verdicts.operating` rewrites the tables. A column of several methods is simulated many times: n
seeds per method and one published number, whose true gap is known. Means and deviations are drawn from their exact
distributions (normal and χ²) instead of from single runs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.verdicts.equivalence import agrees, differs, welch
from bench.files.atomic import write_text
from bench.files.text_table import markdown

DOCUMENT = Path(__file__).parents[2] / "docs" / "published.md"
BEGIN, END = "<!-- simulation:begin -->", "<!-- simulation:end -->"

MARGIN = 1.0
"""The margin of accuracies, in points; the tolerance of the rule before."""

METHODS, DRAWS, SEED = 12, 20_000, 17
GAPS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
STDS = (0.15, 0.3, 0.5, 1.0, 2.0)
SEEDS = (3, 10)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """What is simulated: `std` is the deviation of the judged method's runs, `others` that of the other methods' runs
    as a multiple of it; the published number is a mean over `papers_seeds` seeds.

    `stated`: whether the paper states its seeds (else m = 1); `printed`: whether it prints its deviation over them.
    """

    std: float
    seeds: int
    others: float = 1
    papers_seeds: int = 1
    stated: bool = True
    printed: bool = False


class Shares(NamedTuple):
    """The shares of the verdicts agrees and differs by both rules; the other entries are inconclusive."""

    old_agrees: float
    old_differs: float
    agrees: float
    differs: float


def simulate(case: Case, gap: float, draws: int = DRAWS, seed: int = SEED) -> Shares:
    """The shares of verdicts on one method of a column whose true gap is `gap`."""
    rng = np.random.default_rng(seed)
    n, m = case.seeds, case.papers_seeds
    mean = gap + rng.normal(scale=case.std / math.sqrt(n), size=draws)
    published = rng.normal(scale=case.std / math.sqrt(m), size=draws)
    own = case.std**2 * rng.chisquare(n - 1, draws) / (n - 1)
    df = METHODS * (n - 1)
    others = (case.others * case.std) ** 2 * rng.chisquare(df - (n - 1), draws)
    variance = ((n - 1) * own + others) / df
    error, error_df = np.sqrt(variance * (1 / n + 1 / (m if case.stated else 1))), np.full(draws, float(df))
    if case.printed:
        papers = case.std**2 * rng.chisquare(METHODS * (m - 1), draws) / (METHODS * (m - 1))
        error, error_df = welch(variance / n, df, papers / (m if case.stated else 1), METHODS)
    found = mean - published
    old = old_agrees(found, np.sqrt(own), n)
    new = agrees(found, error, error_df, MARGIN), differs(found, error, error_df, MARGIN)
    return Shares(*(float(share.mean()) for share in (old, ~old, *new)))


def old_agrees(gap: Floats, std: Floats, seeds: int) -> NDArray[np.bool_]:
    """The rule before: the gap is at most 1 point, or within the 95 % interval of the reproduced mean."""
    half_width = float(stats.t.ppf(0.975, seeds - 1)) * std / math.sqrt(seeds)
    return np.asarray(np.abs(gap) <= np.maximum(half_width, MARGIN))


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def side_by_side() -> Iterator[Sequence[str]]:
    """Rows of both rules by deviation and seeds; each cell has the percentages of agrees and differs."""
    for std in STDS:
        for seeds in SEEDS:
            shares = [simulate(Case(std, seeds), gap) for gap in GAPS]
            old = [f"{_percent(share.old_agrees)} / {_percent(share.old_differs)}" for share in shares]
            new = [f"{_percent(share.agrees)} / {_percent(share.differs)}" for share in shares]
            yield [f"{std:g}", str(seeds), "before", *old]
            yield ["", "", "now", *new]


ASSUMPTIONS = {
    "all methods vary alike, published number from one seed": Case(0.3, 3),
    "published number from 3 seeds, stated": Case(0.3, 3, papers_seeds=3),
    "published number from 3 seeds, not stated": Case(0.3, 3, papers_seeds=3, stated=False),
    "± printed over 2 seeds, not stated": Case(0.3, 3, papers_seeds=2, stated=False, printed=True),
    "± printed over 5 seeds, not stated": Case(0.3, 3, papers_seeds=5, stated=False, printed=True),
    "the other methods vary twice as much": Case(0.3, 3, others=2),
    "the other methods vary half as much": Case(0.3, 3, others=0.5),
}
"""Cases of the second table: what the rule assumes, and where an assumption fails."""


def errors() -> Iterator[Sequence[str]]:
    """Rows of the rule's errors in percent: false agrees and differs at the margin, and correct ones."""
    for words, case in ASSUMPTIONS.items():
        at_margin = simulate(case, MARGIN)
        correct = simulate(case, 0).agrees, simulate(case, 3 * MARGIN).differs
        wrong = (f"{100 * share:.1f}" for share in (at_margin.agrees, at_margin.differs))
        yield [words, *wrong, *map(_percent, correct)]


def tables() -> str:
    """Both tables as Markdown."""
    gaps = [f"gap {gap:g}" for gap in GAPS]
    first = markdown(["s", "n", "rule", *gaps], side_by_side(), right={0, 1, *range(3, 3 + len(GAPS))})
    heads = ["s = 0.3, n = 3", "agrees at gap 1 (false)", "differs at gap 1 (false)", "agrees at 0", "differs at 3"]
    second = markdown(heads, errors(), right=range(1, len(heads)))
    return "\n".join([*first, "", *second])


def main() -> None:
    """Rewrite the tables of docs/published.md."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    write_text(DOCUMENT, f"{before}{BEGIN}\n{tables()}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
