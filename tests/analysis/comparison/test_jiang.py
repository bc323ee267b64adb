"""The coefficients of Jiang et al. (2020): values by hand, bounds, and what they leave out."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from fedflat.analysis.comparison.study.configurations import Configurations
from fedflat.analysis.comparison.study.granulated import OVERALL, granulated
from fedflat.analysis.comparison.study.information import K, information, normalised
from fedflat.analysis.comparison.study.kendall import Floats
from fedflat.analysis.comparison.study.levels import Clusters
from tests.analysis.comparison.study_frames import study_runs

SIZES = (3, 2, 4)


def full_grid() -> Configurations:
    """A full grid of three axes, as in the paper; each value of the first axis is a method."""
    codes = np.array(list(itertools.product(*map(range, SIZES)))).T
    means = pd.DataFrame({"dataset": "digits", "method": codes[0].astype(str)})
    return Configurations(means, ("perturbation", "partition", "participation"), codes, codes[0])


def values(draws: list[int]) -> Floats:
    return np.array(draws, dtype=float)


GRID_VALUES = st.lists(st.integers(0, 1000), min_size=24, max_size=24, unique=True).map(values)


@settings(max_examples=30)
@given(GRID_VALUES, GRID_VALUES)
def test_in_a_full_grid_psi_is_that_of_the_paper(measure: Floats, result: Floats) -> None:
    """The mean over all values of the other axes of τ along one axis."""
    grid = full_grid()
    found = granulated(grid, measure, result, Clusters.drawn(SIZES[0], 1, samples=5))
    cubes = measure.reshape(SIZES), result.reshape(SIZES)
    for axis, name in enumerate(grid.axes):
        lines = (np.moveaxis(cube, axis, -1).reshape(-1, SIZES[axis]) for cube in cubes)
        taus = [kendalltau(x, y).statistic for x, y in zip(*lines, strict=True)]
        assert found[name].tau == pytest.approx(np.mean(taus))
    assert found[OVERALL].tau == pytest.approx(np.mean([found[name].tau for name in grid.axes]))


def test_a_pair_inside_a_cluster_counts_as_often_as_the_cluster() -> None:
    """The two methods of cluster 0 are the only pair that disagrees. Drawn are cluster 0 twice, 1 once, 2 three times.

    Weights: 2 inside cluster 0; 2 · 1 and 2 · 3 for each of its methods with clusters 1 and 2; 1 · 3 between those.
    """
    clusters, codes = np.array([0, 0, 1, 2, 3, 4, 5]), np.arange(7)[None]
    methods = Configurations(pd.DataFrame({"dataset": ["digits"] * 7}), ("perturbation",), codes, clusters)
    drawn = Clusters(np.array([[1.0] * 6, [2, 1, 3, 0, 0, 0]]), np.ones((2, 1)))
    found = granulated(methods, np.arange(7.0), np.array([1.0, 0, 2, 3, 4, 5, 6]), drawn)["perturbation"]
    assert found.tau == pytest.approx((20 - 1) / 21)
    assert (found.low, found.high) == pytest.approx(((2 * (2 + 6) + 3 - 2) / (2 * (2 + 6) + 3 + 2),) * 2)


@settings(max_examples=50)
@given(GRID_VALUES, GRID_VALUES)
def test_information_is_between_nothing_and_everything(measure: Floats, result: Floats) -> None:
    found = information(full_grid(), measure, result)
    assert all(0 <= value <= 1 for value in found.values() if np.isfinite(value))
    assert found[K] <= min(value for value in found.values() if np.isfinite(value))
    assert information(full_grid(), np.exp(measure / 1000), result) == pytest.approx(found, nan_ok=True)
    assert information(full_grid(), -measure, result) == pytest.approx(found, nan_ok=True)
    assert information(full_grid(), result, result)[K] == pytest.approx(1), "the oracle knows everything"


def test_a_measure_that_only_repeats_an_axis_says_nothing() -> None:
    """It orders the results well, but not if the axis is known: so the paper distinguishes causes from indications."""
    grid, rng = full_grid(), np.random.default_rng(0)
    result = 10.0 * grid.codes[0] + rng.uniform(0, 5, 24)
    found = information(grid, grid.codes[0].astype(float), result)
    assert found[""] > 0.4
    assert found["perturbation"] == pytest.approx(0)
    assert found[K] == pytest.approx(0)


def test_information_by_hand() -> None:
    """Two values of U: in one the signs agree always, in the other they are independent; so half of the entropy."""
    measure = np.array([1, 1, -1, -1, 1, -1, 1, -1])
    result = np.array([1, 1, -1, -1, 1, 1, -1, -1])
    assert normalised(measure, result, np.array([0] * 4 + [1] * 4)) == pytest.approx(0.5)
    assert np.isnan(normalised(measure, result, np.array([0, 0, 1, 1] * 2))), "U decides the result"


def test_components_of_methods_are_axes() -> None:
    """FedSAM and FedAvg differ in the perturbation only, FedGAMMA and FedSAM in the correction only."""
    runs = study_runs(seeds=1)
    runs = runs[runs["partition"] == "iid"]
    configurations = Configurations.of(runs)
    assert configurations.axes == ("perturbation", "correction", "server", "loss", "participation")
    two = Configurations.of(runs[runs["method"].isin(["fedavg", "fedsam"])])
    assert two.axes == ("perturbation", "participation")
    swa = runs[runs["method"] == "fedavg"]
    with_swa = swa.assign(
        method="fedavg+swa", configuration='{"method": {"name": "fedavg", "hyperparameters": {"swa": {"cycle": 5}}}}'
    )
    both = Configurations.of(pd.concat([swa, with_swa]))
    assert both.axes == ("averaging", "participation")
    assert len(set(both.clusters)) == 1, "they share the rounds before SWA"
    assert len(set(configurations.clusters)) == 8


def test_axes_of_methods_compare_within_a_setting() -> None:
    """Shifting both numbers of a setting changes only the axes that compare settings."""
    runs = study_runs(seeds=2)
    clusters = Clusters.drawn(8, 1, samples=5)

    def psi(table: pd.DataFrame) -> dict[str, float]:
        configurations = Configurations.of(table)
        x, y = (configurations.means[name].to_numpy(float) for name in ("trace", "test_accuracy"))
        return {axis: found.tau for axis, found in granulated(configurations, x, y, clusters).items()}

    is_iid = runs["partition"] == "iid"
    moved = runs.assign(trace=runs["trace"] + 100 * is_iid, test_accuracy=runs["test_accuracy"] + 100 * is_iid)
    before, after = psi(runs), psi(moved)
    assert after["partition"] == 1 != before["partition"]
    assert {k: v for k, v in before.items() if k not in ("partition", OVERALL)} == {
        k: v for k, v in after.items() if k not in ("partition", OVERALL)
    }
