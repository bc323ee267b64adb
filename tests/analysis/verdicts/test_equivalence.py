"""The tests behind verdicts, compared with scipy's t-tests, and what must hold for all numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedflat.analysis.verdicts.equivalence import (
    MOST_SEEDS,
    Noise,
    Spread,
    agrees,
    degrees_of_freedom,
    differs,
    pooled,
    pooled_deviations,
    seeds_to_decide,
    variance_and_seed_share,
    welch_df,
)

SAMPLES = st.lists(st.integers(-500, 500).map(lambda k: k / 100), min_size=2, max_size=8).filter(
    lambda x: len({*x}) > 1
)


def with_df(std: float, df: int) -> Spread:
    """A deviation with these degrees of freedom: that of one method."""
    return Spread(std, methods=1, seeds=df + 1, seed_share=1)


@given(SAMPLES, SAMPLES, st.integers(1, 400).map(lambda k: k / 100))
def test_agrees_is_scipys_two_one_sided_t_tests(ours: list[float], papers: list[float], margin: float) -> None:
    """The published number is the mean of m seeds whose deviation is pooled with ours: both tests are Student's."""
    df = len(ours) + len(papers) - 2
    squares = sum(np.var(sample) * len(sample) for sample in (ours, papers))
    noise = Noise(with_df(math.sqrt(squares / df), df), seeds=len(papers))
    error, df = noise.error(len(ours)), noise.df(len(ours))
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
    a, b = (np.var(sample, ddof=1) / len(sample) for sample in (ours, papers))
    assert welch_df(a, len(ours) - 1, b, len(papers) - 1) == pytest.approx(
        stats.ttest_ind(ours, papers, equal_var=False).df
    )


def by_seed(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


def test_the_pooled_deviation_is_that_within_the_groups_of_an_analysis_of_variance() -> None:
    """F is the mean square between the groups, here worked out by hand, over the pooled variance."""
    groups = [[1.0, 2.0, 6.0], [4.0, 4.5, 8.0], [0.0, 3.0, 3.0]]
    spread = pooled([*map(by_seed, groups), by_seed([7.0])])
    assert spread is not None
    assert (spread.methods, spread.seeds) == (3, 3), "one run alone has no deviation"
    means = np.mean(groups, axis=1)
    between = 3 * np.sum((means - means.mean()) ** 2) / 2
    assert spread.std**2 == pytest.approx(between / stats.f_oneway(*groups).statistic)
    assert pooled([by_seed([1.0]), {}]) is None


def test_the_share_between_seeds_by_hand() -> None:
    """Errors -1, 0, 1 and -3, 0, 3: the means -2, 0, 2 have the variance 4, and the pooled variance is (1 + 9) / 2."""
    spread = pooled([by_seed([9.0, 10.0, 11.0]), by_seed([47.0, 50.0, 53.0])])
    assert spread is not None
    assert (spread.std**2, spread.seed_share) == (pytest.approx(5), pytest.approx(4 / 5))
    opposite = pooled([by_seed([1.0, 2.0, 3.0]), by_seed([3.0, 2.0, 1.0])])
    assert opposite is not None
    assert opposite.seed_share == 0


def test_methods_with_different_seeds_share_those_they_have_in_common() -> None:
    """Two methods with 2 and 4 seeds: s² = (1 * 0.5 + 3 * 5/3) / 4; without common seeds, all counts as shared."""
    two = {0: 1.0, 1: 2.0}
    spread, apart = (pooled([two, {seed + k: float(seed) for seed in range(4)}]) for k in (0, 9))
    assert spread is not None
    assert apart is not None
    assert spread.std == apart.std == pytest.approx(math.sqrt(5.5 / 4))
    assert (spread.seeds, spread.seed_share, apart.seed_share) == (3, pytest.approx(1), 1)
    assert apart.df == pytest.approx(2)


def test_degrees_of_freedom_at_their_limits() -> None:
    """Equal errors count once. With many seeds, independent errors of J methods have J (n - 1) degrees of freedom."""
    assert degrees_of_freedom(1.0, 12, 3) == pytest.approx(2)
    assert degrees_of_freedom(1.0, 1, 3) == pytest.approx(2)
    assert degrees_of_freedom(1 / 12, 12, 1_000_001) == pytest.approx(12_000_000, rel=1e-3)


@given(st.floats(0, 1), st.integers(2, 30), st.integers(2, 50))
def test_degrees_of_freedom_lie_between_those_of_equal_and_of_independent_errors(share: float, j: int, n: int) -> None:
    df = degrees_of_freedom(share, j, n)
    assert n - 1 <= df * (1 + 1e-9)
    assert df <= j * (n - 1) * (1 + 1e-9)


def test_satterthwaites_degrees_of_freedom_match_the_moments_of_the_pooled_variance() -> None:
    """A variance with ν degrees of freedom has the relative variance 2 / ν. The bound makes ν smaller, not larger."""
    rng, methods, n = np.random.default_rng(1), 12, 30
    shared, own = rng.normal(size=(4000, 1, n)), rng.normal(size=(4000, methods, n))
    variance, share = variance_and_seed_share(math.sqrt(0.7) * shared + math.sqrt(0.3) * own)
    moments = 2 * variance.mean() ** 2 / variance.var()
    assert degrees_of_freedom(share, methods, n).mean() == pytest.approx(moments, rel=0.15)
    assert degrees_of_freedom(share, methods, n).mean() < moments


def test_printed_deviations_are_pooled_and_count_as_two_seeds_each() -> None:
    assert pooled_deviations([3.0, 4.0]) == Spread(math.sqrt(12.5), 2, 2, 0.5)
    assert pooled_deviations([]) is None


def test_the_error_by_hand() -> None:
    """s = 0.6, three seeds against one: 0.36 (1/3 + 1) = 0.48. With a printed ± of 0.4: 0.36 / 3 + 0.16 = 0.28."""
    runs = with_df(0.6, 24)
    assert (Noise(runs).error(3), Noise(runs).df(3)) == (pytest.approx(math.sqrt(0.48)), pytest.approx(24))
    assert Noise(runs, seeds=3).error(3) == pytest.approx(math.sqrt(0.24))
    printed = Noise(runs, pooled_deviations([0.4] * 12))
    assert printed.error(3) == pytest.approx(math.sqrt(0.28))
    assert printed.df(3) == pytest.approx(0.28**2 / (0.12**2 / 24 + 0.16**2 / 12))


def test_without_noise_the_gap_decides() -> None:
    noise = Noise(with_df(0, 4), pooled_deviations([0.0, 0.0]))
    error, df = noise.error(3), noise.df(3)
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
    st.builds(Spread, st.floats(0.01, 2), st.integers(1, 12), st.integers(2, 9), st.floats(0, 1)),
    st.none() | st.builds(pooled_deviations, st.lists(st.floats(0.01, 1), min_size=1, max_size=12)),
    st.integers(1, 10),
)


@given(GAPS, NOISES)
def test_the_seeds_to_decide_are_the_first_that_do(gap: float, noise: Noise) -> None:
    def is_decided(n: int) -> bool:
        error, df = noise.error(n), noise.df(n, seeds=n)
        return bool(agrees(gap, error, df, 1.0) or differs(gap, error, df, 1.0))

    seeds = seeds_to_decide(gap, 1.0, noise)
    tried = range(2, MOST_SEEDS + 1) if seeds is None else range(2, seeds)
    assert not any(is_decided(n) for n in [*tried[:20], *tried[-20:]])
    assert seeds is None or is_decided(seeds)


def test_the_noise_of_one_published_run_can_leave_a_verdict_open_for_ever() -> None:
    """At gap 0, s t (1/n + 1)^(1/2) ≤ 1 needs s < 1 / 1.645 = 0.608, since the 1 is the published run's share."""
    assert seeds_to_decide(0.0, 1.0, Noise(Spread(0.61, 12, 3, 0.5))) is None
    assert seeds_to_decide(0.0, 1.0, Noise(Spread(0.6, 12, 3, 0.5))) is not None
    assert seeds_to_decide(0.0, 1.0, Noise(Spread(0.61, 12, 3, 0.5), seeds=3)) is not None
