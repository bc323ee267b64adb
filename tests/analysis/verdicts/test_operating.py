"""Simulated errors of the rule: at most 5 % of both kinds, equal to an integral and to a simulation of single runs."""

import math
import re

import numpy as np
import pytest
from scipy import integrate, stats

from analysis.published.numbers import PublishedNumber
from analysis.verdicts.equivalence import Noise, pooled
from analysis.verdicts.margins import Margin
from analysis.verdicts.operating import (
    BEGIN,
    DOCUMENT,
    DRAWS,
    END,
    GAPS,
    MARGIN,
    METHODS,
    SEEDS,
    STDS,
    Case,
    simulate,
    tables,
)
from analysis.verdicts.verdict import verdict

DEVIATIONS = 3
"""How many binomial deviations a simulated share may exceed what it must not exceed."""


def at_most(share: float, draws: int = DRAWS) -> float:
    return share + DEVIATIONS * math.sqrt(share * (1 - share) / draws)


CASES = [Case(std, n, papers_seeds=m) for std in STDS for n in SEEDS for m in (1, 3)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_false_verdicts_are_rare(case: Case) -> None:
    for gap in GAPS:
        shares = simulate(case, gap)
        if gap >= MARGIN:
            assert shares.agrees <= at_most(0.05), f"a gap of {gap} agrees"
        if gap <= MARGIN:
            assert shares.differs <= at_most(0.05), f"a gap of {gap} differs"


@pytest.mark.parametrize("k", [2, 3, 5, 10])
@pytest.mark.parametrize("std", STDS)
def test_false_verdicts_are_rare_with_printed_deviations_over_unstated_seeds(std: float, k: int) -> None:
    shares = simulate(Case(std, 3, papers_seeds=k, stated=False, printed=True), MARGIN)
    assert max(shares.agrees, shares.differs) <= at_most(0.05)


def test_the_rule_before_accepted_large_gaps() -> None:
    """A gap of 5 points at a deviation of 2 points and 3 seeds; and a gap of 1.5 points at 0.5."""
    assert simulate(Case(2, 3), 5).old_agrees == pytest.approx(0.41, abs=0.01)
    assert simulate(Case(0.5, 3), 1.5).old_agrees == pytest.approx(0.36, abs=0.015)


def integral(case: Case, gap: float) -> tuple[float, float]:
    """The probabilities of agrees and differs: normal for a given pooled deviation, whose distribution is χ."""
    df = METHODS * (case.seeds - 1)
    scale = math.sqrt(1 / case.seeds + 1 / case.papers_seeds)
    found = stats.norm(gap, case.std * scale)

    def within(ratio: float) -> float:
        reach = MARGIN - stats.t.ppf(0.95, df) * case.std * ratio * scale
        return max(0.0, found.cdf(reach) - found.cdf(-reach))

    def outside(ratio: float) -> float:
        reach = MARGIN + stats.t.ppf(0.975, df) * case.std * ratio * scale
        return found.sf(reach) + found.cdf(-reach)

    density = stats.chi(df, scale=1 / math.sqrt(df)).pdf
    agrees, differs = (
        integrate.quad(lambda r, share=share: share(r) * density(r), 0.2, 3, limit=200, points=[0.8, 1, 1.2])[0]
        for share in (within, outside)
    )
    return agrees, differs


@pytest.mark.parametrize("case", [Case(0.3, 3), Case(0.5, 3, papers_seeds=3), Case(1, 10)], ids=str)
@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0])
def test_the_simulation_is_the_integral(case: Case, gap: float) -> None:
    shares = simulate(case, gap)
    for share, exact in zip((shares.agrees, shares.differs), integral(case, gap), strict=True):
        assert abs(share - exact) <= DEVIATIONS * math.sqrt(exact * (1 - exact) / DRAWS) + 1e-6


@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0])
def test_the_simulation_is_that_of_single_runs_and_the_verdicts_of_tables(gap: float) -> None:
    rng, draws, case = np.random.default_rng(5), 1500, Case(0.3, 3)
    found = {"agrees": 0, "differs": 0, "inconclusive": 0}
    for _ in range(draws):
        runs = gap + rng.normal(scale=case.std, size=(METHODS, case.seeds))
        spread = pooled(runs.tolist())
        assert spread is not None
        printed = PublishedNumber(50 + float(rng.normal(scale=case.std)), decimals=9)
        found[verdict((50 + runs[0]).tolist(), printed, Margin(points=MARGIN), Noise(spread)).kind] += 1
    shares = simulate(case, gap)
    for kind, share in (("agrees", shares.agrees), ("differs", shares.differs)):
        assert abs(found[kind] / draws - share) <= 4 * math.sqrt(share * (1 - share) / draws) + 1e-3


def test_the_documents_tables_are_those_of_the_simulation() -> None:
    """`python -m analysis.verdicts.operating` rewrites them. Other versions of numpy may draw other numbers."""
    shown = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    number = re.compile(r"\d+(?:\.\d+)?")
    assert number.sub("#", shown) == number.sub("#", tables())
    pairs = zip(number.findall(shown), number.findall(tables()), strict=True)
    assert all(abs(float(a) - float(b)) <= 1 for a, b in pairs)
