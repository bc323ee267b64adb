"""Kendall's τ_b with weights: SciPy's values, and those of repeated points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from fedflat.analysis.comparison.study.kendall import partial, tau_b

NUMBERS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(0, 3)), min_size=2, max_size=12)


def tau(x: object, y: object) -> float:
    return float(tau_b(x, y, np.ones((1, len(np.asarray(x)))))[0])  # type: ignore[arg-type]


@given(NUMBERS)
def test_weights_are_copies_of_points(rows: list[tuple[int, int, int]]) -> None:
    x, y, copies = np.array(rows, dtype=float).T
    found = float(tau_b(x, y, [copies])[0])
    repeated = np.repeat(np.arange(len(x)), copies.astype(int))
    expected = kendalltau(x[repeated], y[repeated]).statistic if len(repeated) > 1 else np.nan
    assert found == pytest.approx(expected, nan_ok=True, abs=1e-12)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=12, unique=True), st.randoms())
def test_a_measure_agrees_with_itself_whatever_its_scale(values: list[int], random: object) -> None:
    x = np.array(values, dtype=float)
    y = x.copy()
    random.shuffle(y)  # type: ignore[attr-defined]
    assert tau(x, x) == pytest.approx(1)
    assert tau(x, -x) == pytest.approx(-1)
    assert tau(np.exp(x / 10), y**3) == pytest.approx(tau(x, y))
    assert tau(-x, y) == pytest.approx(-tau(x, y))
    assert -1 <= tau(x, y) <= 1


def test_points_without_a_value_are_left_out() -> None:
    x, y = np.array([1.0, 2, np.nan, 3, 4]), np.array([1.0, 3, 9, np.nan, 2])
    assert tau(x, y) == pytest.approx(kendalltau([1, 2, 4], [1, 3, 2]).statistic)
    assert np.isnan(tau([1.0, 1], [1.0, 2])), "all points are tied"


@pytest.mark.parametrize("sign", [1, -1])
def test_partial_correlation_is_that_of_gaussian_variables(sign: int) -> None:
    """Against the regression of both on z; the three correlations differ, and one may be negative."""
    rng = np.random.default_rng(1)
    z, u, v = rng.normal(size=(3, 4000))
    x, y = z + u, sign * 0.5 * z + 0.6 * u + v
    found = float(partial(*(np.array([kendalltau(*pair).statistic]) for pair in ((x, y), (x, z), (y, z))))[0])
    of_x, of_y = (values - np.polyval(np.polyfit(z, values, 1), z) for values in (x, y))
    expected = 2 / np.pi * np.arcsin(np.corrcoef(of_x, of_y)[0, 1])
    assert found == pytest.approx(expected, abs=0.02)


def test_partial_correlation_removes_a_common_cause() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=400)
    x, y = z + rng.normal(size=400), z + rng.normal(size=400)
    found = float(partial(*(np.array([tau(*pair)]) for pair in ((x, y), (x, z), (y, z))))[0])
    assert tau(x, y) > 0.25
    assert abs(found) < 0.08
    assert np.isnan(partial(np.array([0.2]), np.array([1.0]), np.array([0.2]))[0]), "z has the order of x"
