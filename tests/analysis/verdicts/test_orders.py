"""The order of the methods seed by seed: pairs by hand, and Kendall's tau with scipy's interval of a mean."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedflat.analysis.published.numbers import PublishedNumber
from fedflat.analysis.verdicts.orders import OrderOfMethods, Pair, PairCounts, Tau, order


def found(reproduced: dict[str, list[float]], printed: dict[str, float | None]) -> OrderOfMethods | None:
    return order(
        {method: dict(enumerate(values)) for method, values in reproduced.items()},
        {method: PublishedNumber(value) for method, value in printed.items()},
    )


OURS = {"a": [3.0, 3.0, 3.0], "b": [2.0, 4.0, 2.0], "c": [9.0, 9.0, 9.0], "d": [1.0, 1.0, 3.0]}
PRINTED = {"a": 80.0, "b": 79.0, "c": 70.0, "d": 70.0}


def test_pairs_by_hand() -> None:
    """a > b in two of three seeds; a > d in the first two, equal in the third; c is reversed; c and d are equal."""
    result = found(OURS, PRINTED)
    assert result is not None
    assert result.pairs == (
        Pair("a", "b", 3, 2),
        Pair("a", "c", 3, 0),
        Pair("a", "d", 3, 2),
        Pair("b", "c", 3, 0),
        Pair("b", "d", 3, 2),
    )
    assert result.counts == PairCounts(0, 3, 2)
    assert result.of_method("c") == PairCounts(0, 0, 2)
    assert str(result.of_method("d")) == "0 / 2 / 0"


def test_seeds_are_paired_by_their_number() -> None:
    """Only seed 1 is common; in it, the order is the printed one."""
    ours = {"a": {0: 0.0, 1: 5.0}, "b": {1: 4.0, 2: 9.0}, "e": {7: 1.0}}
    result = order(ours, {method: PublishedNumber(value) for method, value in {"a": 2.0, "b": 1.0, "e": 0.0}.items()})
    assert result is not None
    assert result.pairs == (Pair("a", "b", 1, 1),)
    assert result.tau is None, "no seed has all three methods"


def test_methods_without_values_or_printed_numbers_have_no_pairs() -> None:
    assert found({"a": [1.0], "b": []}, {"a": 1.0, "b": 2.0}) is None
    assert found({"a": [1.0], "b": [2.0]}, {"a": 1.0, "b": None}) is None
    assert found({"a": [1.0], "b": [2.0]}, {"a": 1.0, "b": 1.0}) is None
    assert found({}, {}) is None


def test_tau_by_hand() -> None:
    """Of six pairs of four methods, five stand in the same order and one is exchanged: (5 - 1) / 6."""
    result = found({"a": [1.0], "b": [2.0], "c": [3.0], "d": [4.0]}, {"a": 1.0, "b": 2.0, "c": 4.0, "d": 3.0})
    assert result is not None
    assert result.tau == Tau(pytest.approx(4 / 6), None, None, 1, 4)
    assert str(result.tau) == "0.67"


def test_only_methods_of_one_group_are_compared() -> None:
    """a > b > c and d > e in print. In the only seed, b and c are exchanged; the order of both groups is irrelevant."""
    ours = {"a": {0: 9.0}, "b": {0: 1.0}, "c": {0: 2.0}, "d": {0: 5.0}, "e": {0: 4.0}}
    printed = {method: PublishedNumber(value) for method, value in zip("abcde", (70, 60, 50, 90, 80), strict=True)}
    result = order(ours, printed, dict.fromkeys("abc", "one") | dict.fromkeys("de", "other"))
    assert result is not None
    assert [pair[:2] for pair in result.pairs] == [("a", "b"), ("a", "c"), ("b", "c"), ("d", "e")]
    assert result.counts == PairCounts(3, 0, 1)
    assert result.tau == Tau(pytest.approx((3 - 1) / 4), None, None, 1, 5)
    assert order(ours, printed, dict.fromkeys("abcde", "one")) == order(ours, printed)
    single = order(ours, printed, {method: method for method in "abcde"})
    assert single is None, "no two methods can be compared"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=9))
def test_tau_in_one_group_is_that_of_scipy(points: list[tuple[int, int]]) -> None:
    ours, theirs = zip(*points, strict=True)
    names = [f"m{k}" for k in range(len(points))]
    result = found(
        {name: [float(value)] for name, value in zip(names, ours, strict=True)},
        dict(zip(names, map(float, theirs), strict=True)),
    )
    expected = stats.kendalltau(ours, theirs).statistic
    if result is None or result.tau is None:
        assert len(set(theirs)) == 1 or math.isnan(expected)
    else:
        assert result.tau.mean == pytest.approx(expected)


def test_tau_needs_three_methods() -> None:
    result = found({"a": [1.0], "b": [2.0]}, {"a": 1.0, "b": 2.0})
    assert result is not None
    assert result.tau is None


def test_the_same_tau_in_all_seeds_has_no_interval() -> None:
    result = found({"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [3.0, 3.0]}, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert result is not None
    assert result.tau == Tau(1.0, None, None, 2, 3)


def test_a_seed_with_equal_values_has_no_tau() -> None:
    result = found({"a": [1.0, 5.0], "b": [2.0, 5.0], "c": [3.0, 5.0]}, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert result is not None
    assert result.tau == Tau(1.0, None, None, 1, 3)
    assert result.counts == PairCounts(0, 3, 0), "equal is not the printed order"


VALUES = st.lists(st.lists(st.integers(0, 50).map(float), min_size=3, max_size=3), min_size=3, max_size=8)


@given(VALUES, st.randoms(use_true_random=False))
def test_tau_and_its_interval_over_seeds(values: list[list[float]], random) -> None:
    """τ from the pairs of each seed, as Kendall defines it, and the interval from scipy's one-sample t-test."""
    printed = random.sample(range(100), len(values))
    names = [f"m{k}" for k in range(len(values))]
    result = found(dict(zip(names, values, strict=True)), dict(zip(names, map(float, printed), strict=True)))
    assert result is not None
    taus = []
    for ours in zip(*values, strict=True):
        pairs = list(itertools.combinations(range(len(values)), 2))
        signs = [np.sign(ours[a] - ours[b]) * np.sign(printed[a] - printed[b]) for a, b in pairs]
        untied = sum(ours[a] != ours[b] for a, b in pairs)
        if untied:
            taus.append(sum(signs) / np.sqrt(untied * len(pairs)))
    if not taus:
        assert result.tau is None
        return
    assert result.tau is not None
    assert result.tau.mean == pytest.approx(np.mean(taus))
    if np.ptp(taus) < 1e-9:
        assert result.tau.low is None
        return
    low, high = stats.ttest_1samp(taus, 0).confidence_interval(0.95)
    assert (result.tau.low, result.tau.high) == (pytest.approx(max(low, -1)), pytest.approx(min(high, 1)))
    assert [float(text.strip("[,]")) for text in str(result.tau).split()] == pytest.approx(result.tau[:3], abs=0.00501)
    assert "-0.00" not in str(result.tau)


def test_the_interval_of_tau_covers_its_expectation() -> None:
    """Twelve methods whose means lie one deviation apart, 3 and 10 seeds: at least 90 % of intervals cover E[τ].

    τ is bounded and discrete, so the interval is not exact; without it (τ equal in all seeds) nothing is claimed.
    """
    rng = np.random.default_rng(3)
    means = np.arange(12.0)
    printed = {f"m{k}": PublishedNumber(float(mean)) for k, mean in enumerate(means)}
    single = [stats.kendalltau(means + rng.normal(size=12), means).statistic for _ in range(4000)]
    for seeds in (3, 10):
        covered = claimed = 0
        for _ in range(400):
            values = means[:, None] + rng.normal(size=(12, seeds))
            result = order({f"m{k}": dict(enumerate(row)) for k, row in enumerate(values)}, printed)
            assert result is not None
            assert result.tau is not None
            if result.tau.low is not None and result.tau.high is not None:
                claimed += 1
                covered += result.tau.low <= np.mean(single) <= result.tau.high
        assert claimed > 350
        assert covered / claimed > 0.92
