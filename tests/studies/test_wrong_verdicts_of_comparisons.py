"""The operating characteristics: at most 5 % of wrong verdicts, and tables that say what simulations give."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedflat.analysis.comparison.statistics.scores import Scores
from fedflat.analysis.comparison.statistics.verdicts import BETTER, verdicts
from studies.marked_text import part
from studies.wrong_verdicts.of_comparisons import (
    ALL,
    DOCUMENT,
    METHOD,
    PART,
    RULES,
    PairSpread,
    coverage,
    drawn,
    false_pairs,
    measured,
    power,
    rates,
    simulated,
    tables,
    worse_by,
)
from tests.analysis.binomial import at_most
from tests.analysis.comparison.frames import complete_runs

DRAWS = 150
OURS = "the rule of the comparison"
IN_SETTINGS, EACH = "the rule of the comparison, in single settings", "instead: each single setting corrected by itself"
BY_RUN = "instead: t-tests of runs, not of seeds, with Holm's correction"


@pytest.fixture(scope="module")
def stored() -> Scores:
    methods = {f"m{k}": 80.0 + k for k in range(5)}
    return Scores.of(complete_runs(methods), "test_accuracy", "higher")


def test_the_spread_is_that_of_the_runs(stored: Scores) -> None:
    found = measured(stored)  # of independent runs with a deviation of 1
    assert found.deviation == pytest.approx(math.sqrt(2), rel=0.15)
    assert found.correlation < 0.15
    copied = replace(stored, values=np.repeat(stored.values[:, :1], 4, axis=1))
    assert measured(copied).correlation == pytest.approx(1)
    rng, spread = np.random.default_rng(1), PairSpread(2.0, 0.5)
    again = measured(simulated(spread, 20, 4, 40, rng))
    assert (again.deviation, again.correlation) == pytest.approx((2.0, 0.5), rel=0.15)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_wrong_verdicts_on_identical_methods_are_rare(correlation: float) -> None:
    rng = np.random.default_rng(4)
    found = rates(RULES, lambda: simulated(PairSpread(1.0, correlation), 9, 4, 8, rng), DRAWS)
    assert found[OURS][1] <= at_most(0.05, DRAWS)
    assert found["one rival at a time, not corrected"][0] <= at_most(0.05, DRAWS)
    assert found["one rival at a time, not corrected"][1] > found[OURS][1]
    assert found[IN_SETTINGS][1] <= at_most(0.05, DRAWS)
    assert found[EACH][1] > at_most(0.05, DRAWS), "four families of tests"
    if correlation:
        assert found[BY_RUN][1] > at_most(0.05, DRAWS), "runs with the same seed are not independent"


def test_wrong_verdicts_on_copies_of_stored_runs_are_rare(stored: Scores) -> None:
    rng = np.random.default_rng(4)
    found = rates({OURS: RULES[OURS]}, lambda: drawn(stored, 9, 10, rng), DRAWS)
    assert found[OURS][1] <= at_most(0.05, DRAWS)
    copy = drawn(stored, 3, 10, rng)
    assert np.isin(copy.values, stored.values).all()
    [source] = {int(np.argwhere((stored.values == value).any(axis=(1, 2)))[0, 0]) for value in copy.values.ravel()}
    for m, seed in np.ndindex(3, 10):  # the settings of a seed stay together
        assert (copy.values[m, :, seed] == stored.values[source].T).all(axis=1).any()


def test_large_gaps_are_found(stored: Scores) -> None:
    found = verdicts(worse_by(drawn(stored, 4, 10, np.random.default_rng(0)), 20.0, ALL), METHOD)
    assert (found["verdict"] == BETTER).all()


def test_power_grows_with_the_seeds() -> None:
    rows = {int(row[1]): row for row in power(PairSpread(1.0, 0.2), 1, 1.0, 12)}
    assert rows[3][2] == rows[5][2] == "no verdict"
    assert int(rows[6][4]) <= int(rows[10][4]) <= int(rows[20][4])
    assert int(rows[20][4]) > 60
    assert float(rows[6][5]) > float(rows[10][5]) > float(rows[20][5])


def test_other_intervals_are_too_short(stored: Scores) -> None:
    rows = {(row[0], row[1]): (float(row[2]), float(row[3])) for row in coverage(stored, 300)}
    assert rows["normal", "Student's t"][0] == pytest.approx(95, abs=4)
    for name in ("percentile bootstrap", "BCa bootstrap"):
        assert rows["normal", name][0] < rows["normal", "Student's t"][0]
        assert rows["normal", name][1] < 0.95
    assert ("stored differences, drawn again", "bootstrap-t") in rows


def test_the_diagram_is_wrong_as_seldom_as_it_says() -> None:
    [ours, nemenyi] = [float(row[1]) / 100 for row in false_pairs(PairSpread(1.0, 0.3), 4, DRAWS)]
    assert ours <= at_most(0.05, DRAWS)
    assert nemenyi > at_most(0.05, DRAWS)


def test_the_document_has_the_tables(stored: Scores) -> None:
    """As many tables with the same heads and first columns; the numbers are those of more draws."""
    written = part(DOCUMENT, PART)
    heads = [line for line in tables("grid", stored, 2).splitlines() if line.startswith(("**", "| ---"))]
    assert heads
    assert [line for line in written.splitlines() if line.startswith(("**", "| ---"))] == heads
