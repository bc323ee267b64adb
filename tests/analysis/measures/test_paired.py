"""Paired statistics: by hand where numbers are few, and what must hold for any numbers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from fedflat.analysis.measures.paired import (
    EXACT_PAIRS,
    interval,
    sign_flip,
    sign_flip_corrected,
    sign_flip_limit,
)
from tests.analysis.binomial import at_most

values = st.floats(-100, 100, allow_nan=False).map(lambda v: round(v, 6))
several = st.lists(values, min_size=3, max_size=20).map(np.array)
few = settings(max_examples=40, deadline=None)


def test_interval_by_hand() -> None:
    # Mean 1, variance 1, three values: t = 4.3027 with 2 degrees of freedom.
    assert interval([0, 1, 2]) == pytest.approx((1 - 4.3027 / 3**0.5, 1 + 4.3027 / 3**0.5), abs=1e-4)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_interval_contains_the_true_mean_as_often_as_it_says(seeds: int) -> None:
    drawn = np.random.default_rng(7).normal(0, 1, (2000, seeds))
    hits = np.mean([low <= 0 <= high for low, high in map(interval, drawn)])
    assert 0.935 < hits < 0.965


def test_interval_is_that_of_the_normal_distribution_for_many_pairs() -> None:
    d = np.random.default_rng(5).normal(3, 2, 400)
    low, high = interval(d)
    assert (high - low) / 2 == pytest.approx(1.96 * d.std(ddof=1) / 20, rel=0.04)


@pytest.mark.parametrize("d", [[], [1.0], [1.0, 2.0]])
def test_no_interval_of_fewer_than_three_pairs(d: list[float]) -> None:
    assert all(map(math.isnan, interval(d)))


@few
@given(several)
def test_interval_is_antisymmetric(d: np.ndarray) -> None:
    low, high = interval(d)
    assert interval(-d) == pytest.approx((-high, -low), abs=1e-9)


@few
@given(several, values)
def test_interval_moves_with_the_differences(d: np.ndarray, shift: float) -> None:
    low, high = interval(d)
    assert interval(d + shift) == pytest.approx((low + shift, high + shift), abs=1e-9)


@few
@given(several)
def test_interval_contains_the_mean_and_repeats(d: np.ndarray) -> None:
    low, high = interval(d)
    assert low <= d.mean() <= high
    assert interval(d) == (low, high)


@few
@given(values, st.integers(3, 7))
def test_equal_differences_contain_their_mean_in_spite_of_roundings(mean: float, seeds: int) -> None:
    d = np.full(seeds, mean / 3)
    low, high = interval(d)
    assert low <= d.mean() <= high
    assert high - low < 1e-12


@few
@given(st.integers(3, 20))
def test_no_differences_give_zero_and_one(n: int) -> None:
    assert interval(np.zeros(n)) == (0, 0)
    assert sign_flip(np.zeros(n)) == 1


def test_sign_flip_by_hand() -> None:
    # ±1 ±2 ±3: only +6 and -6 are as far from 0 as 6.
    assert sign_flip([1, 2, 3]) == 2 / 8
    # ±1 ±2 ±1: 4, 2, 2, 0, 0, -2, -2, -4; six of eight are as far as 2.
    assert sign_flip([1, 2, -1]) == 6 / 8
    assert sign_flip([]) == 1
    assert sign_flip([5]) == 1


def test_sums_that_differ_by_roundings_are_ties() -> None:
    # 0.3 - 0.1 - 0.2 is -2.8e-17: nothing is nearer to 0 than that.
    assert sign_flip([0.3, -0.1, -0.2]) == 1
    assert sign_flip([0.1, 0.2, 0.3, -0.3]) == sign_flip([1, 2, 3, -3])


@few
@given(st.lists(values, min_size=1, max_size=7))
def test_sign_flip_looks_at_all_flips(d: list[float]) -> None:
    flips = itertools.product((1, -1), repeat=len(d))
    sums = [abs(math.fsum(s * v for s, v in zip(signs, d, strict=True))) for signs in flips]
    expected = sum(s >= abs(math.fsum(d)) - 1e-9 * sum(map(abs, d)) for s in sums) / len(sums)
    assert sign_flip(d) == expected


@few
@given(st.lists(values, min_size=1, max_size=30))
def test_p_values_are_probabilities_and_symmetric(d: list[float]) -> None:
    p = sign_flip(d)
    assert 0 < p <= 1
    assert sign_flip([-v for v in d]) == p
    assert sign_flip(d) == p


def test_random_flips_agree_with_all_flips() -> None:
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.3, 0.6):
        d = rng.normal(shift, 1, EXACT_PAIRS)
        more = np.append(d, 0.0)  # a zero changes no sum, but takes it beyond the exact test
        assert sign_flip(more) == pytest.approx(sign_flip(d), abs=0.02)


def test_no_number_of_random_flips_gives_a_p_value_of_zero() -> None:
    # Of 2^40 flips, two are as far from 0: no random one is, so the flip that was seen is counted.
    assert sign_flip(np.ones(40)) == 1 / 10_001


def step_down(columns: list[list[float]]) -> list[float]:
    """Westfall and Young's algorithm 4.1 with t statistics and all flips, as it is written."""
    d = np.array(columns).T
    flips = [np.array(signs)[:, None] * d for signs in itertools.product((1, -1), repeat=len(d))]

    def t(x: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.abs(np.nan_to_num(x.mean(axis=0) / x.std(axis=0), posinf=1e9, neginf=1e9))

    found, order = t(d), np.argsort(-t(d), kind="stable")
    p, largest = np.empty(len(columns)), 0.0
    for place, column in enumerate(order):
        rest = order[place:]
        reached = [t(flip)[rest].max() >= found[column] * (1 - 1e-7) for flip in flips]
        largest = max(largest, float(np.mean(reached)))
        p[column] = largest
    return p.tolist()


columns = st.integers(2, 6).flatmap(
    lambda n: st.lists(st.lists(values.map(lambda v: round(v, 1)), min_size=n, max_size=n), min_size=1, max_size=4)
)


@few
@given(columns)
def test_corrected_sign_flips_are_those_of_the_algorithm(d: list[list[float]]) -> None:
    corrected = sign_flip_corrected(np.array(d).T)
    assert corrected.tolist() == pytest.approx(step_down(d))
    single = [sign_flip(column) for column in d]
    assert np.all(corrected >= np.array(single) - 1e-12)


def test_one_test_needs_no_correction_and_copies_of_it_need_none() -> None:
    d = np.random.default_rng(2).normal(0.5, 1, (8, 1))
    assert sign_flip_corrected(d).tolist() == [sign_flip(d[:, 0])]
    assert sign_flip_corrected(np.repeat(d, 5, axis=1)).tolist() == [sign_flip(d[:, 0])] * 5
    assert sign_flip_corrected(np.zeros((7, 3))).tolist() == [1, 1, 1]


def test_corrected_sign_flips_are_wrong_as_seldom_as_they_say_and_find_more_than_holm() -> None:
    rng, draws, any_wrong, ours, holms = np.random.default_rng(9), 300, 0, 0, 0
    for _ in range(draws):
        d = rng.normal(size=(10, 1)) - rng.normal(size=(10, 20))
        any_wrong += (sign_flip_corrected(d) < 0.05).any()
        ours += (sign_flip_corrected(d + 2) < 0.05).sum()
        holms += multipletests([sign_flip(column) for column in (d + 2).T], method="holm")[0].sum()
    assert any_wrong / draws < at_most(0.05, draws)
    assert ours > 1.2 * holms


@pytest.mark.parametrize("seeds", [6, 8, 10])
def test_the_limit_leaves_less_than_alpha_of_the_flips(seeds: int) -> None:
    """With those of the seen signs and their opposite, which reach it if there is a true difference."""
    d = np.random.default_rng(seeds).normal(size=(seeds, 5))
    d -= d.mean(axis=0)
    flips = (np.array(signs)[:, None] * d for signs in itertools.product((1, -1), repeat=seeds))
    t = np.array([np.abs(f.mean(axis=0) / f.std(axis=0, ddof=1)).max() * math.sqrt(seeds) for f in flips])
    limit = sign_flip_limit(d, 0.05)
    assert np.mean(t > limit * (1 + 1e-9)) + 2 / len(t) < 0.05 <= np.mean(t > limit * (1 - 1e-9)) + 2 / len(t)
