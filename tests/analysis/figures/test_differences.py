"""Paired differences of final values: their order, intervals, and runs that failed."""

from pathlib import Path
from typing import Any

import pytest

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment
from tests.analysis.conftest import HARD, metrics, tidy_in, words, write
from tests.analysis.figures.drawings import EASY, drawn, foot, panels


def differences_of(results: Path, finals: dict[Setting, dict[str, list[float]]], **options: Any) -> None:
    for setting, by_method in finals.items():
        for method, values in by_method.items():
            write(results, CellAddress(setting, method), "metrics", metrics(values, **options))


def test_differences_are_paired_and_sorted_and_show_every_run(tmp_path: Path, quick: Experiment) -> None:
    for method, finals in {"fedavg": [80, 90], "fedgf": [70, 84], "fedsam": [82, 93]}.items():
        write(tmp_path, CellAddress(HARD, method), "metrics", metrics(finals))
    figure = drawn("differences", tidy_in(tmp_path, quick))
    assert [label.get_text() for label in panels(figure)[0].get_yticklabels()] == ["FedSAM", "FedGF"]
    (hard,) = [axes for axes in panels(figure) if axes.get_title() == setting_title(HARD)]
    _, runs, mean, worse_runs, worse_mean = hard.lines  # the first line marks zero
    assert list(runs.get_xdata()) == pytest.approx([2, 3])
    assert list(worse_runs.get_xdata()) == pytest.approx([-10, -6])
    assert [float(line.get_xdata()[0]) for line in (mean, worse_mean)] == pytest.approx([2.5, -8])
    assert set(runs.get_ydata()) != set(mean.get_ydata()), "the interval hides no run"


def test_a_method_that_failed_in_the_hard_setting_is_not_ranked_by_the_easy_one(
    tmp_path: Path, quick: Experiment
) -> None:
    """It has no mean over all settings, stands last, and its missing settings are named."""
    finals = {
        EASY: {"fedavg": [80.0, 81.0, 79.0], "fedsam": [81.0, 82.0, 79.0], "fedgf": [95.0, 95.0, 94.0]},
        HARD: {"fedavg": [60.0, 61.0, 59.0], "fedsam": [61.0, 62.0, 59.0]},
    }
    differences_of(tmp_path, finals)
    differences_of(tmp_path, {HARD: {"fedgf": [60.0, 61.0, 59.0]}}, diverged=dict.fromkeys(range(3), 3))
    tidy = tidy_in(tmp_path, quick)
    figure = drawn("differences", tidy)
    whole = panels(figure)[0]
    assert whole.get_title() == "2 of 4 settings"
    assert [label.get_text() for label in whole.get_yticklabels()] == ["FedSAM", "FedGF"]
    assert [len(line.get_xdata()) for line in whole.lines[1:]] == [3, 1, 0], "no point of FedGF"
    assert len(whole.collections) == 1, "and no interval"
    assert "not in the means over all settings, because a setting has no pair: FedGF (seeds 0, 1, 2)" in foot(figure)
    caption = words(figures.caption(figures.load_figure("quick", "differences"), tidy))
    assert "Small points: runs (in the panel of all settings, their means over the settings by seed)" in caption
    assert "lines: 95 % t-intervals over seeds." in caption


def test_the_interval_over_all_settings_is_that_of_the_seeds_means(tmp_path: Path, quick: Experiment) -> None:
    """A seed that is good in all settings, as its initial model may be, counts once, not once per setting."""
    base = [80.0, 80.0, 80.0]
    differences_of(tmp_path, {place: {"fedavg": base, "fedsam": [81.0, 83.0, 85.0]} for place in (EASY, HARD)})
    whole, *single = (axes for axes in panels(drawn("differences", tidy_in(tmp_path, quick))) if axes.collections)
    (line,) = whole.collections
    low, high = line.get_segments()[0][:, 0]
    assert (low, high) == pytest.approx((3 - 4.3027 * 2 / 3**0.5, 3 + 4.3027 * 2 / 3**0.5), abs=1e-3)
    assert all(axes.collections[0].get_segments()[0][:, 0] == pytest.approx([low, high]) for axes in single)


def test_a_seed_without_a_pair_in_some_setting_is_left_out_over_all_settings(tmp_path: Path, quick: Experiment) -> None:
    finals = {
        EASY: {"fedavg": [80.0, 81.0, 79.0], "fedsam": [81.0, 82.0, 79.0]},
        HARD: {"fedavg": [60.0, 61.0, 59.0], "fedsam": [61.0]},
    }
    differences_of(tmp_path, finals)
    figure = drawn("differences", tidy_in(tmp_path, quick))
    whole = panels(figure)[0]
    assert not whole.collections, "one seed has no interval"
    assert [list(line.get_xdata()) for line in whole.lines[1:]] == [pytest.approx([1.0])] * 2
    assert "not in the means over all settings, because a setting has no pair: FedSAM (seeds 1, 2)" in foot(figure)


def test_one_seed_has_no_intervals_and_no_means_over_seeds(tmp_path: Path, quick: Experiment) -> None:
    differences_of(tmp_path, {place: {"fedavg": [80.0], "fedsam": [81.0]} for place in (EASY, HARD)})
    tidy = tidy_in(tmp_path, quick)
    figure = drawn("differences", tidy)
    caption = words(figures.caption(figures.load_figure("quick", "differences"), tidy))
    assert "interval" not in caption + foot(figure)
    assert "over seeds" not in caption
    assert "1 seed. Points: runs; in the panel of all settings, their means over the settings." in caption
    assert not any(axes.collections for axes in panels(figure))
