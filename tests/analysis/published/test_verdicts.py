"""Verdicts: each by hand, the rule at its borders, and what must hold for all numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.published.numbers import PublishedNumber
from analysis.published.verdicts import ACCURACIES as ACCURACIES_IN_PERCENT
from analysis.published.verdicts import COUNTS, PLURALS, Reproduced, Verdict, counts, rank_correlation, rule, verdict
from analysis.tables.quantities import QUANTITIES

PRINTED = PublishedNumber(80.0)
ACCURACY = "test_accuracy"

# Three seeds with deviation 1: the interval's half width is t(0.975, 2) / sqrt(3) = 4.302653 / 1.732051 = 2.484138.
HALF_WIDTH = 2.484138

CASES = [
    ("within the tolerance, one seed", Reproduced(80.9), PRINTED, ACCURACY, "agrees", 0.9),
    ("at the tolerance", Reproduced(81.0), PRINTED, ACCURACY, "agrees", 1.0),
    ("beyond the tolerance", Reproduced(81.1), PRINTED, ACCURACY, "differs", 1.1),
    ("below", Reproduced(78.0), PRINTED, ACCURACY, "differs", -2.0),
    ("within the interval", Reproduced(82.4, 1.0, 3), PRINTED, ACCURACY, "agrees", 2.4),
    ("beyond the interval", Reproduced(82.5, 1.0, 3), PRINTED, ACCURACY, "differs", 2.5),
    ("narrow interval, within the tolerance", Reproduced(80.9, 0.01, 3), PRINTED, ACCURACY, "agrees", 0.9),
    ("no tolerance for other metrics", Reproduced(80.9, 0.01, 3), PRINTED, "lambda_max", "differs", 0.9),
    ("the interval of other metrics", Reproduced(82.4, 1.0, 3), PRINTED, "lambda_max", "agrees", 2.4),
    ("one seed of other metrics", Reproduced(80.9), PRINTED, "lambda_max", "not judged", 0.9),
    ("exact counts", Reproduced(3.0, 0.0, 3), PublishedNumber(2.0, decimals=0), "model_transmissions", "differs", 1.0),
    ("counts of one seed", Reproduced(3.0), PublishedNumber(2.0, decimals=0), "client_state", "differs", 1.0),
    ("equal counts", Reproduced(2.0), PublishedNumber(2.0, decimals=0), "uploads_per_round", "agrees", 0.0),
    ("rounded counts", Reproduced(1.3333), PublishedNumber(1.33), "gradients_per_step", "agrees", 0.0033),
    ("equal in the printed decimals", Reproduced(1.3333), PublishedNumber(1.33), "comm_cost_x", "agrees", 0.0033),
    ("nothing run", "not run", PRINTED, ACCURACY, "not run", None),
    ("no value yet", "not analysed", PRINTED, "lambda_max", "not analysed", None),
    ("another data set", "not supported", PRINTED, ACCURACY, "not supported", None),
    ("diverged", "diverged", PRINTED, ACCURACY, "diverged", None),
    ("not reached here", "censored", PRINTED, "rounds_to_target", "censored", None),
    ("a bound", Reproduced(9.0), PublishedNumber(800.0, note="censored"), "rounds_to_target", "censored", None),
    ("nothing printed", Reproduced(80.0), None, ACCURACY, "not published", None),
    ("a dash", Reproduced(80.0), PublishedNumber(None, note="not_reported"), ACCURACY, "not published", None),
    ("nothing printed, nothing run", "not run", None, ACCURACY, "not published", None),
    ("failed there", Reproduced(80.0), PublishedNumber(None, note="failed"), ACCURACY, "not judged", None),
    ("failed there, not run here", "not run", PublishedNumber(None, note="failed"), ACCURACY, "not run", None),
    ("doubtful", Reproduced(80.0), PublishedNumber(80.0, note="typo_suspected: x"), ACCURACY, "not judged", None),
    ("doubtful, and not run", "not run", PublishedNumber(80.0, note="ocr_zero_risk"), ACCURACY, "not run", None),
    ("confirmed", Reproduced(80.0), PublishedNumber(80.0, note="crosscheck: equals table 2"), ACCURACY, "agrees", 0.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reproduced", "published", "metric", "kind", "gap"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_by_hand(reproduced, published, metric, kind, gap):
    judged = verdict(reproduced, published, metric)
    assert judged.kind == kind
    assert judged.gap == (None if gap is None else pytest.approx(gap))


def test_every_kind_is_among_the_cases():
    assert {case[4] for case in CASES} == set(PLURALS)


def test_the_interval_is_students():
    assert Reproduced(80.0, 1.0, 3).half_width == pytest.approx(HALF_WIDTH, abs=1e-5)
    assert Reproduced(80.0, 1.0, 2).half_width == pytest.approx(12.7062 / math.sqrt(2), abs=1e-4)
    assert Reproduced(80.0, None, 1).half_width is None


def test_the_tolerance_can_be_changed_and_the_caption_says_so():
    assert verdict(Reproduced(82.0), PRINTED, ACCURACY, tolerance=2).kind == "agrees"
    assert "within 1 point of it" in rule()
    assert "within 0.5 points of it" in rule(0.5)


def test_counts_are_quantities_and_no_accuracies():
    assert set(QUANTITIES) >= COUNTS
    assert not COUNTS & ACCURACIES_IN_PERCENT
    assert "exact counts need none" in rule()


def test_texts():
    assert Verdict("differs", -1.234).text() == "differs (-1.23)"
    assert Verdict("differs", 12.0).text(0) == "differs (+12)"
    assert Verdict("agrees", 0.3).text() == "agrees"
    assert Verdict("not run").text() == "not run"


def test_counts():
    some = [Verdict("not run")] * 5 + [Verdict("differs", 2.0)] * 3 + [Verdict("agrees", 0.1)] * 12
    assert counts(some) == "12 agree, 3 differ, 5 not run"
    assert (
        counts([Verdict("differs", 2.0), Verdict("agrees", 0.0), Verdict("diverged")])
        == "1 agrees, 1 differs, 1 diverged"
    )
    assert counts([]) == "no cells"


ACCURACIES = st.floats(0, 100, allow_subnormal=False)


@given(ACCURACIES, ACCURACIES, st.floats(0, 5), st.integers(1, 10), st.sampled_from([ACCURACY, "lambda_max"]))
def test_above_and_below_are_judged_alike(mean, value, std, seeds, metric):
    """Exchanging the two numbers turns the gap around and keeps the verdict."""
    spread = std if seeds > 1 else None
    one = verdict(Reproduced(mean, spread, seeds), PublishedNumber(value), metric)
    other = verdict(Reproduced(value, spread, seeds), PublishedNumber(mean), metric)
    assert one.kind == other.kind
    assert one.gap is not None
    assert one.gap == -other.gap


@given(ACCURACIES, ACCURACIES, st.floats(0, 5), st.integers(2, 10))
def test_more_spread_never_makes_a_difference(mean, value, std, seeds):
    narrow, wide = (
        verdict(Reproduced(mean, s, seeds), PublishedNumber(value), ACCURACY).kind for s in (std, 2 * std + 0.1)
    )
    assert narrow != "agrees" or wide == "agrees"


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=12, unique=True))
def test_equal_orders_have_tau_1_and_reversed_ones_minus_1(numbers):
    ours = {f"m{k}": float(number) for k, number in enumerate(numbers)}
    assert rank_correlation(ours, {m: 2 * v + 1 for m, v in ours.items()}) == (pytest.approx(1), len(numbers))
    assert rank_correlation(ours, {m: -v for m, v in ours.items()}) == (pytest.approx(-1), len(numbers))


def test_tau_by_hand():
    """Of six pairs of four methods, five stand in the same order and one is exchanged: (5 - 1) / 6."""
    ours = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    assert rank_correlation(ours, {"a": 1.0, "b": 2.0, "c": 4.0, "d": 3.0}) == (pytest.approx(4 / 6), 4)


def test_tau_needs_three_methods_with_both_numbers():
    ours = {"a": 1.0, "b": 2.0, "c": 3.0, "d": None}
    assert rank_correlation(ours, {"a": 1.0, "b": 2.0, "d": 4.0}) is None
    assert rank_correlation(ours, {"a": 1.0, "b": None, "c": 3.0, "d": 4.0}) is None
    assert rank_correlation(ours, {"a": 1.0, "b": 1.0, "c": 1.0}) is None, "all equal: there is no order"
    assert rank_correlation(ours, {"a": 1.0, "b": 2.0, "c": 3.0, "e": 0.0}) == (pytest.approx(1), 3)
