"""The levels of rank correlation, and how often their intervals contain the true value."""

import math

import numpy as np
import pytest

from fedflat.analysis.comparison.study.kendall import Floats
from fedflat.analysis.comparison.study.levels import (
    ALL,
    BETWEEN,
    LEVELS,
    WITHIN,
    Clusters,
    Correlation,
    SettingSample,
    pooled,
)

METHODS, SEEDS = 20, 8


def drawn(rng: np.random.Generator, between: float, within: float) -> SettingSample:
    """Methods whose effects on x and y correlate by `between`, and runs by `within`; seeds have effects of their own.

    Half of the variance within a method is that of its seeds, which all methods share.
    """

    def pair(correlation: float, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        x, e = rng.standard_normal(shape), rng.standard_normal(shape)
        return x, correlation * x + math.sqrt(1 - correlation**2) * e

    (a, b), (c, d), (e, f) = pair(between, (METHODS, 1)), pair(within, (METHODS, SEEDS)), pair(within, (1, SEEDS))
    return SettingSample(np.arange(METHODS), 3 * a + math.sqrt(0.5) * (c + e), 3 * b + math.sqrt(0.5) * (d + f))


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_intervals_contain_the_true_value(correlation: float) -> None:
    """At least 95 % less the error of 200 draws (3 %): they draw whole methods and whole seeds.

    For normal values τ is 2/π arcsin(ρ), within methods and between their means.
    """
    rng, clusters = np.random.default_rng(5), Clusters.drawn(METHODS, SEEDS, samples=200)
    found = [pooled([drawn(rng, correlation, correlation).levels(clusters)], clusters) for _ in range(200)]
    true = 2 / math.pi * math.asin(correlation)
    for level in LEVELS:
        holds = np.mean([one[level].low <= true <= one[level].high for one in found])
        assert holds >= 0.92, (level, holds)
        assert np.mean([one[level].tau for one in found]) == pytest.approx(true, abs=0.05)


def test_methods_and_seeds_may_disagree() -> None:
    """Between methods x and y agree, within each method they do not; 'all runs' has the order of the methods."""
    method, seed = np.arange(METHODS)[:, None], np.arange(SEEDS)
    clusters = Clusters.drawn(METHODS, SEEDS, samples=50)
    found = pooled(
        [SettingSample(np.arange(METHODS), 100.0 * method + seed, 100.0 * method - seed).levels(clusters)], clusters
    )
    assert found[BETWEEN].tau == pytest.approx(1)
    assert found[WITHIN].tau == pytest.approx(-1)
    assert 0.8 < found[ALL].tau < 1


def test_only_runs_of_one_setting_are_compared() -> None:
    rng, clusters = np.random.default_rng(0), Clusters.drawn(METHODS, SEEDS, samples=50)
    sample = drawn(rng, 0.5, 0.5)
    shifted = SettingSample(sample.methods, sample.x + 1000, sample.y - 1000)
    one, two = (pooled([s.levels(clusters) for s in chosen], clusters) for chosen in ([sample], [sample, shifted]))
    assert one == two


def test_few_methods_or_seeds_have_no_interval() -> None:
    clusters = Clusters.drawn(4, SEEDS, samples=20)
    x = np.random.default_rng(0).normal(size=(4, SEEDS))
    assert np.isnan(pooled([SettingSample(np.arange(4), x, x).levels(clusters)], clusters)[BETWEEN].low)
    clusters = Clusters.drawn(METHODS, 3, samples=20)
    x = np.random.default_rng(0).normal(size=(METHODS, 3))
    found = pooled([SettingSample(np.arange(METHODS), x, x).levels(clusters)], clusters)
    assert found[BETWEEN] == Correlation(1, 1, 1)
    assert np.isnan(found[WITHIN].tau), "too few seeds for a rank correlation"
    assert found[ALL].tau == pytest.approx(1)
    assert np.isnan(found[ALL].low)


def test_the_bootstrap_draws_clusters_of_methods() -> None:
    """Ten pairs of equal methods say as much as ten methods: the interval is that of ten."""
    rng = np.random.default_rng(4)
    x, y = (np.repeat(rng.normal(size=(10, SEEDS)), 2, axis=0) for _ in range(2))
    y = y + x
    clusters, apart = Clusters.drawn(10, SEEDS), Clusters.drawn(20, SEEDS)
    together = pooled([SettingSample(np.repeat(np.arange(10), 2), x, y).levels(clusters)], clusters)[BETWEEN]
    separate = pooled([SettingSample(np.arange(20), x, y).levels(apart)], apart)[BETWEEN]
    assert together.tau == separate.tau
    assert together.high - together.low > 1.2 * (separate.high - separate.low)


def test_a_setting_with_few_methods_is_left_out_of_the_mean() -> None:
    clusters = Clusters.drawn(METHODS, SEEDS, samples=50)
    full = drawn(np.random.default_rng(1), 0.9, 0.9)
    few = SettingSample(np.arange(4), -full.x[:4], full.y[:4])
    large, small = full.levels(clusters), few.levels(clusters)
    assert pooled([large, small], clusters) == pooled([large], clusters)
    alone = pooled([small], clusters)[BETWEEN]
    assert np.isfinite(alone.tau)
    assert np.isnan(alone.low)


def test_given_a_third_number_its_order_says_nothing() -> None:
    rng, clusters = np.random.default_rng(3), Clusters.drawn(METHODS, SEEDS, samples=20)
    z = rng.normal(size=(METHODS, SEEDS))
    x, y = z + 0.3 * rng.normal(size=z.shape), z + 0.3 * rng.normal(size=z.shape)
    assert pooled([SettingSample(np.arange(METHODS), x, y).levels(clusters)], clusters)[ALL].tau > 0.6
    assert abs(pooled([SettingSample(np.arange(METHODS), x, y, z).levels(clusters)], clusters)[ALL].tau) < 0.12
