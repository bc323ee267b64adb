"""Best scores so far: by hand, what must hold for any scores, and the exact mean over all orders."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedflat.analysis.measures.best_so_far import best_so_far, random_orders

scores = st.lists(st.floats(0, 100), min_size=1, max_size=6)
few = settings(max_examples=40, deadline=None)


def all_orders(trials: int) -> np.ndarray:
    return np.array([(0, *rest) for rest in itertools.permutations(range(1, trials))], dtype=np.intp)


def test_by_hand() -> None:
    orders = np.array([[0, 1, 2, 3], [0, 3, 1, 2]])
    assert best_so_far([5, 4, 9, 7], orders).tolist() == [[5, 5, 9, 9], [5, 7, 7, 9]]
    assert best_so_far([5, 4, 9], orders).tolist() == [[5, 5, 9, 9], [5, 5, 9, 9]], "trial 3 is skipped"
    assert best_so_far([5], orders).tolist() == [[5] * 4] * 2


def test_orders_begin_with_trial_0_and_are_equally_likely() -> None:
    orders = random_orders(4, 6000)
    assert (orders[:, 0] == 0).all()
    assert (np.sort(orders, axis=1) == range(4)).all()
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 150
    assert (random_orders(4, 6000) == orders).all(), "always the same ones"
    assert random_orders(1, 3).tolist() == [[0]] * 3


@few
@given(scores)
def test_curves_rise_from_the_first_score_to_the_best(values: list[float]) -> None:
    best = best_so_far(values, random_orders(len(values), 20))
    assert (best[:, 0] == values[0]).all()
    assert (np.diff(best, axis=1) >= 0).all()
    assert (best[:, -1] == max(values)).all()


@few
@given(scores, st.randoms())
def test_the_order_of_the_later_trials_does_not_matter(values: list[float], random) -> None:
    others = values[1:]
    random.shuffle(others)
    orders = all_orders(len(values))
    found = [sorted(map(tuple, best_so_far(one, orders))) for one in (values, [values[0], *others])]
    assert found[0] == found[1]


@few
@given(scores, st.integers(1, 4))
def test_missing_trials_are_as_good_as_useless_ones_at_the_end(values: list[float], more: int) -> None:
    """All scores are reached no later than with further trials that fail."""
    orders = random_orders(len(values) + more, 20)
    short, padded = best_so_far(values, orders), best_so_far([*values, *[-1.0] * more], orders)
    assert (short >= padded).all()
    assert (short[:, -1] == padded[:, -1]).all()


@pytest.mark.parametrize("values", [[50.0, 40, 60, 55, 70, 45], [90.0, 1, 2, 3, 4, 5], [1.0, 7, 7, 7, 7, 7]])
def test_the_mean_over_orders_is_the_exact_one(values: list[float]) -> None:
    """The m-th smallest of the N − 1 later scores is the largest of n − 1 drawn ones in C(m − 1, n − 2) cases."""
    others = sorted(values[1:])
    for n in range(2, len(values) + 1):
        ways = [math.comb(m, n - 2) for m in range(len(others))]
        exact = sum(way * max(values[0], other) for way, other in zip(ways, others, strict=True)) / sum(ways)
        assert best_so_far(values, all_orders(len(values)))[:, n - 1].mean() == pytest.approx(exact)
        assert best_so_far(values, random_orders(len(values), 4000))[:, n - 1].mean() == pytest.approx(exact, abs=1)
