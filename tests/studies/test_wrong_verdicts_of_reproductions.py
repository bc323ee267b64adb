"""Simulated errors of the rule: at most 5 % of both kinds, equal to an integral and to a simulation of single runs."""

import itertools
import math
import re

import numpy as np
import pytest
from scipy import integrate, stats

from fedflat.analysis.published.numbers import PublishedNumber
from fedflat.analysis.verdicts.equivalence import Noise, agrees, pooled
from fedflat.analysis.verdicts.margins import Margin
from fedflat.analysis.verdicts.verdict import verdict
from studies.marked_text import part
from studies.wrong_verdicts.of_reproductions import (
    DOCUMENT,
    DRAWS,
    GAPS,
    MARGIN,
    METHODS,
    PART,
    SEEDS,
    STDS,
    Case,
    simulate,
    tables,
)
from tests.analysis.binomial import at_most, deviations
from tests.tiers import case

"""How many binomial deviations a simulated share may exceed what it must not exceed."""


CORRELATIONS = (0, 0.5, 0.8, 1)
GRID = itertools.product(STDS, (2, *SEEDS), CORRELATIONS, (1, 3))
CASES = [case(Case(std, n, rho, papers_seeds=m), quick=turn % 3 == 0) for turn, (std, n, rho, m) in enumerate(GRID)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_false_verdicts_are_rare(case: Case) -> None:
    for gap, shares in zip(GAPS, simulate(case, GAPS), strict=True):
        if gap >= MARGIN:
            assert shares.agrees <= at_most(0.05, DRAWS), f"a gap of {gap} agrees"
        if gap <= MARGIN:
            assert shares.differs <= at_most(0.05, DRAWS), f"a gap of {gap} differs"


@pytest.mark.parametrize("k", [3, 5, 10])
@pytest.mark.parametrize("rho", CORRELATIONS)
@pytest.mark.parametrize("std", STDS)
def test_false_verdicts_are_rare_with_printed_deviations_over_unstated_seeds(std: float, rho: float, k: int) -> None:
    [shares] = simulate(Case(std, 3, rho, papers_seeds=k, stated=False, printed=True), [MARGIN])
    assert max(shares.agrees, shares.differs) <= at_most(0.05, DRAWS)


def test_pooled_degrees_of_freedom_that_ignore_correlation_would_be_wrong() -> None:
    """With J (n - 1) = 24 degrees of freedom, errors that all methods share would make 11 % of false agreements."""
    case, rng, draws = Case(0.15, 3, correlation=1), np.random.default_rng(2), 20_000
    errors = case.std * rng.normal(size=(draws, case.seeds))
    error = np.sqrt(errors.var(axis=1, ddof=1) * (1 / case.seeds + 1))
    gap = MARGIN + errors.mean(axis=1) - case.std * rng.normal(size=draws)
    assert agrees(gap, error, 24, MARGIN).mean() > 0.10
    assert agrees(gap, error, 2, MARGIN).mean() == pytest.approx(0.05, abs=0.006)


def test_the_rule_before_accepted_large_gaps() -> None:
    """A gap of 5 points at a deviation of 2 points and 3 seeds; and a gap of 1.5 points at 0.5."""
    assert simulate(Case(2, 3), [5])[0].old_agrees == pytest.approx(0.41, abs=0.015)
    assert simulate(Case(0.5, 3), [1.5])[0].old_agrees == pytest.approx(0.36, abs=0.015)


def integral(std: float, n: int, m: int, gap: float) -> tuple[float, float]:
    """The probabilities of agrees and differs if all methods have equal errors: Student's t with n - 1 degrees.

    The gap is normal for a given deviation, whose distribution is χ.
    """
    scale = std * math.sqrt(1 / n + 1 / m)
    found = stats.norm(gap, scale)

    def within(ratio: float) -> float:
        reach = MARGIN - stats.t.ppf(0.95, n - 1) * ratio * scale
        return max(0.0, found.cdf(reach) - found.cdf(-reach))

    def outside(ratio: float) -> float:
        reach = MARGIN + stats.t.ppf(0.975, n - 1) * ratio * scale
        return found.sf(reach) + found.cdf(-reach)

    density = stats.chi(n - 1, scale=1 / math.sqrt(n - 1)).pdf
    agree, differ = (
        integrate.quad(lambda ratio, share=share: share(ratio) * density(ratio), 0, 5, limit=200)[0]
        for share in (within, outside)
    )
    return agree, differ


@pytest.mark.parametrize(("std", "n", "m"), [(0.3, 3, 1), (0.5, 3, 3), (1, 10, 1)])
def test_the_simulation_is_the_integral(std: float, n: int, m: int) -> None:
    gaps = (0.0, 1.0, 2.0)
    for gap, shares in zip(gaps, simulate(Case(std, n, correlation=1, papers_seeds=m), gaps), strict=True):
        for share, exact in zip((shares.agrees, shares.differs), integral(std, n, m, gap), strict=True):
            assert abs(share - exact) <= deviations(exact, DRAWS) + 1e-4


@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0])
def test_the_simulation_is_that_of_single_runs_and_the_verdicts_of_tables(gap: float) -> None:
    rng, draws, case = np.random.default_rng(5), 1500, Case(0.3, 3, correlation=0)
    found = {"agrees": 0, "differs": 0, "inconclusive": 0}
    for _ in range(draws):
        runs = gap + rng.normal(scale=case.std, size=(METHODS, case.seeds))
        spread = pooled(dict(enumerate(row)) for row in runs.tolist())
        assert spread is not None
        printed = PublishedNumber(50 + float(rng.normal(scale=case.std)), decimals=9)
        found[verdict((50 + runs[0]).tolist(), printed, Margin(points=MARGIN), Noise(spread)).kind] += 1
    [shares] = simulate(case, [gap])
    for kind, share in (("agrees", shares.agrees), ("differs", shares.differs)):
        assert abs(found[kind] / draws - share) <= 4 * math.sqrt(share * (1 - share) / draws) + 1e-3


def test_the_documents_tables_are_those_of_the_simulation() -> None:
    """`python -m studies.wrong_verdicts.of_reproductions` rewrites them; other versions of numpy may draw others."""
    shown = part(DOCUMENT, PART)
    number = re.compile(r"\d+(?:\.\d+)?")
    assert number.sub("#", shown) == number.sub("#", tables())
    pairs = zip(number.findall(shown), number.findall(tables()), strict=True)
    assert all(abs(float(a) - float(b)) <= 1 for a, b in pairs)
