"""The tests behind verdicts, compared with scipy's t-tests, and what must hold for all numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.verdicts.equivalence import (
    MOST_SEEDS,
    Noise,
    Spread,
    agrees,
    differs,
    pooled,
    pooled_deviations,
    seeds_to_decide,
    welch,
)

SAMPLES = st.lists(st.integers(-500, 500).map(lambda k: k / 100), min_size=2, max_size=8).filter(
    lambda x: len({*x}) > 1
)


@given(SAMPLES, SAMPLES, st.integers(1, 400).map(lambda k: k / 100))
def test_agrees_is_scipys_two_one_sided_t_tests(ours: list[float], papers: list[float], margin: float) -> None:
    """If the published number is the mean of m seeds, whose deviation is pooled with ours, both tests are Student's."""
    runs = pooled([ours, papers])
    assert runs is not None
    error, df = Noise(runs, seeds=len(papers)).error(len(ours))
    gap = float(np.mean(ours) - np.mean(papers))
    below = stats.ttest_ind(np.array(ours) - margin, papers, alternative="less").pvalue
    above = stats.ttest_ind(np.array(ours) + margin, papers, alternative="greater").pvalue
    if not math.isclose(max(below, above), 0.05, rel_tol=1e-6):
        assert agrees(gap, error, df, margin) == (max(below, above) <= 0.05)
    low, high = stats.ttest_ind(ours, papers).confidence_interval(0.95)
    if not math.isclose(max(low, -high), margin, rel_tol=1e-6):
        assert differs(gap, error, df, margin) == (low > margin or high < -margin)


@given(SAMPLES, SAMPLES)
def test_welch_is_scipys_unequal_variances_t_test(ours: list[float], papers: list[float]) -> None:
    variances = (np.var(sample, ddof=1) / len(sample) for sample in (ours, papers))
    error, df = welch(next(variances), len(ours) - 1, next(variances), len(papers) - 1)
    reference = stats.ttest_ind(ours, papers, equal_var=False)
    assert df == pytest.approx(reference.df)
    assert (np.mean(ours) - np.mean(papers)) == pytest.approx(reference.statistic * error, abs=1e-9)


def test_the_pooled_deviation_is_that_within_the_groups_of_an_analysis_of_variance() -> None:
    """F is the mean square between the groups, here worked out by hand, over the pooled variance."""
    groups = [[1.0, 2.0, 6.0], [4.0, 4.5, 8.0], [0.0, 3.0, 3.0]]
    spread = pooled([*groups, [7.0]])
    assert spread is not None
    assert (spread.df, spread.methods) == (6, 3), "one run alone has no deviation"
    means = np.mean(groups, axis=1)
    between = 3 * np.sum((means - means.mean()) ** 2) / 2
    assert spread.std**2 == pytest.approx(between / stats.f_oneway(*groups).statistic)
    assert pooled([[1.0], []]) is None


def test_printed_deviations_are_pooled_and_count_as_two_seeds_each() -> None:
    assert pooled_deviations([3.0, 4.0]) == Spread(math.sqrt(12.5), 2, 2)
    assert pooled_deviations([]) is None


def test_the_error_by_hand() -> None:
    """s = 0.6, three seeds against one: 0.36 (1/3 + 1) = 0.48. With a printed ± of 0.4: 0.36 / 3 + 0.16 = 0.28."""
    runs = Spread(0.6, 24, 12)
    error, df = Noise(runs).error(3)
    assert (error, df) == (pytest.approx(math.sqrt(0.48)), 24)
    assert Noise(runs, seeds=3).error(3)[0] == pytest.approx(math.sqrt(0.24))
    error, df = Noise(runs, Spread(0.4, 12, 12)).error(3)
    assert error == pytest.approx(math.sqrt(0.28))
    assert df == pytest.approx(0.28**2 / (0.12**2 / 24 + 0.16**2 / 12))


def test_without_noise_the_gap_decides() -> None:
    noise = Noise(Spread(0.0, 4, 2), Spread(0.0, 2, 2))
    error, df = noise.error(3)
    assert agrees(1.0, error, df, 1.0), "at the margin is within it"
    assert not differs(1.0, error, df, 1.0)
    assert differs(1.01, error, df, 1.0)
    assert df > 0


GAPS = st.floats(-5, 5)
STDS = st.floats(0, 3)


@given(GAPS, STDS, STDS, st.integers(1, 60))
def test_more_noise_decides_nothing_that_less_noise_leaves_open(gap: float, std: float, more: float, df: int) -> None:
    for decided in (agrees, differs):
        assert not decided(gap, std + more, df, 1.0) or decided(gap, std, df, 1.0)


@given(GAPS, STDS, st.integers(1, 60))
def test_no_gap_agrees_and_differs_and_the_sign_is_irrelevant(gap: float, error: float, df: int) -> None:
    assert not (agrees(gap, error, df, 1.0) and differs(gap, error, df, 1.0))
    for decided in (agrees, differs):
        assert decided(gap, error, df, 1.0) == decided(-gap, error, df, 1.0)


NOISES = st.builds(
    Noise,
    st.builds(lambda std, methods: Spread(std, 2 * methods, methods), st.floats(0.01, 2), st.integers(1, 12)),
    st.none() | st.builds(lambda std, methods: Spread(std, methods, methods), st.floats(0.01, 1), st.integers(1, 12)),
    st.integers(1, 10),
)


@given(GAPS, NOISES)
def test_the_seeds_to_decide_are_the_first_that_do(gap: float, noise: Noise) -> None:
    def is_decided(n: int) -> bool:
        error, df = noise.error(n, noise.runs.methods * (n - 1))
        return bool(agrees(gap, error, df, 1.0) or differs(gap, error, df, 1.0))

    seeds = seeds_to_decide(gap, 1.0, noise)
    tried = range(2, MOST_SEEDS + 1) if seeds is None else range(2, seeds)
    assert not any(is_decided(n) for n in [*tried[:20], *tried[-20:]])
    assert seeds is None or is_decided(seeds)


def test_the_noise_of_one_published_run_can_leave_a_verdict_open_for_ever() -> None:
    """At gap 0, s t (1/n + 1)^(1/2) ≤ 1 needs s < 1 / 1.645 = 0.608, since the 1 is the published run's share."""
    assert seeds_to_decide(0.0, 1.0, Noise(Spread(0.61, 24, 12))) is None
    assert seeds_to_decide(0.0, 1.0, Noise(Spread(0.6, 24, 12))) is not None
    assert seeds_to_decide(0.0, 1.0, Noise(Spread(0.61, 24, 12), seeds=3)) is not None
