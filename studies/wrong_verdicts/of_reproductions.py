"""How often verdicts are wrong: the rule and the one before it on simulated runs; tables of studies/pages/published.md.

`python -m studies.wrong_verdicts.of_reproductions` rewrites the tables. A column of several methods is simulated many
times: n seeds per method, whose errors are correlated within a seed, and a published number, from which the true gap is
known.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedflat.analysis.verdicts.equivalence import agrees, degrees_of_freedom, differs, variance_and_seed_share, welch_df
from fedflat.bench.files.text_table import markdown
from studies.marked_text import rewrite_part
from studies.places import DETAILS

DOCUMENT = DETAILS / "published.md"
PART = "simulation"

MARGIN = 1.0
"""The margin of accuracies, in points; the tolerance of the rule before."""

METHODS, DRAWS, SEED = 12, 10_000, 17
GAPS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
STDS = (0.15, 0.3, 0.5, 1.0, 2.0)
SEEDS = (3, 10)

CORRELATION = 0.7
"""Of the errors of two methods in one seed, unless stated otherwise: the stored baselines have 0.5 to 0.85."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """What is simulated: `std` is the deviation of the judged method's runs, `others` that of the other methods' runs
    as a multiple of it; `correlation` is that of the errors of two methods in one seed; the published number is a mean
    over `papers_seeds` seeds.

    `stated`: whether the paper states its seeds (else m = 1); `printed`: whether it prints its deviations over them.
    """

    std: float
    seeds: int
    correlation: float = CORRELATION
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


def simulate(case: Case, gaps: Sequence[float], draws: int = DRAWS, seed: int = SEED) -> list[Shares]:
    """The shares of verdicts on one method of a column, for each true gap."""
    rng = np.random.default_rng(seed)
    n, m = case.seeds, case.papers_seeds
    counted = m if case.stated else 1
    runs, papers = _errors(case, n, draws, rng), _errors(case, m, draws, rng)
    variance, share = variance_and_seed_share(runs)
    error, df = np.sqrt(variance * (1 / n + 1 / counted)), degrees_of_freedom(share, METHODS, n)
    if case.printed:
        own, theirs = variance / n, papers.var(axis=-1, ddof=1).mean(axis=-1) / counted
        error, df = np.sqrt(own + theirs), welch_df(own, df, theirs, METHODS)
    found = runs[:, 0].mean(axis=-1) - papers[:, 0].mean(axis=-1)
    std = runs[:, 0].std(axis=-1, ddof=1)
    shares = []
    for gap in gaps:
        old, d = old_agrees(found + gap, std, n), found + gap
        verdicts = (old, ~old, agrees(d, error, df, MARGIN), differs(d, error, df, MARGIN))
        shares.append(Shares(*(float(verdict.mean()) for verdict in verdicts)))
    return shares


def _errors(case: Case, n: int, draws: int, rng: np.random.Generator) -> Floats:
    """Errors of the runs `[draws, methods, n]`; the judged method is the first one."""
    shared = math.sqrt(case.correlation) * rng.normal(size=(draws, 1, n))
    own = math.sqrt(1 - case.correlation) * rng.normal(size=(draws, METHODS, n))
    scale = np.full((METHODS, 1), case.others * case.std)
    scale[0] = case.std
    return np.asarray(scale * (shared + own))


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
            shares = simulate(Case(std, seeds), GAPS)
            old = [f"{_percent(share.old_agrees)} / {_percent(share.old_differs)}" for share in shares]
            new = [f"{_percent(share.agrees)} / {_percent(share.differs)}" for share in shares]
            yield [f"{std:g}", str(seeds), "before", *old]
            yield ["", "", "now", *new]


ASSUMPTIONS = {
    "as above": Case(0.3, 3),
    "errors of the methods independent": Case(0.3, 3, correlation=0),
    "errors of the methods equal": Case(0.3, 3, correlation=1),
    "published number from 3 seeds, stated": Case(0.3, 3, papers_seeds=3),
    "published number from 3 seeds, not stated": Case(0.3, 3, papers_seeds=3, stated=False),
    "± printed over 3 seeds, not stated": Case(0.3, 3, papers_seeds=3, stated=False, printed=True),
    "the other methods vary twice as much": Case(0.3, 3, others=2),
    "the other methods vary half as much": Case(0.3, 3, others=0.5),
}
"""Cases of the second table: what the rule assumes, and where an assumption fails."""


def errors() -> Iterator[Sequence[str]]:
    """Rows of the rule's errors in percent: false agrees and differs at the margin, and correct ones."""
    for words, case in ASSUMPTIONS.items():
        at_zero, at_margin, beyond = simulate(case, (0, MARGIN, 3 * MARGIN))
        wrong = (f"{100 * share:.1f}" for share in (at_margin.agrees, at_margin.differs))
        yield [words, *wrong, _percent(at_zero.agrees), _percent(beyond.differs)]


def tables() -> str:
    """Both tables as Markdown."""
    gaps = [f"gap {gap:g}" for gap in GAPS]
    first = markdown(["s", "n", "rule", *gaps], side_by_side(), right={0, 1, *range(3, 3 + len(GAPS))})
    heads = ["s = 0.3, n = 3", "agrees at gap 1 (false)", "differs at gap 1 (false)", "agrees at 0", "differs at 3"]
    second = markdown(heads, errors(), right=range(1, len(heads)))
    return "\n".join([*first, "", *second])


def main() -> None:
    """Rewrite the tables of studies/pages/published.md."""
    rewrite_part(DOCUMENT, PART, tables())


if __name__ == "__main__":
    main()
