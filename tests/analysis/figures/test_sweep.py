"""Figures of final values against a swept value."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.axes
import pandas as pd
import pytest
import yaml

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.kinds.sweep import SweepLayout
from fedflat.analysis.layouts.protocol import with_requested_value
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, metrics, tidy_in, words, write
from tests.analysis.figures.drawings import EASY, foot, legend, panels

POINTS = [{"x": 0.1, "select": {"partition": "dirichlet-0.1"}}, {"x": 0.6, "select": {"partition": "dirichlet-0.6"}}]
PANEL = {"x": "α", "select": {"participation": "4-of-20"}, "points": POINTS}


def layout(*panels: dict[str, Any], **fields: Any) -> SweepLayout:
    given = {"kind": "sweep", "title": "T", "caption": "C.", "methods": ["fedavg", "fedsam"], "panels": list(panels)}
    return SweepLayout.parse({**given, **fields}, "sweep")


def line(axes: matplotlib.axes.Axes, k: int = 0) -> list[tuple[float, float]]:
    """The k-th line's points; every line is followed by its marks."""
    return [(round(float(x), 6), round(float(y), 6)) for x, y in axes.lines[2 * k].get_xydata()]


@pytest.fixture
def two(tmp_path: Path, quick: Experiment) -> Tidy:
    """Two methods in two settings, two seeds each."""
    finals = {
        (HARD, "fedavg"): (60, 70),
        (EASY, "fedavg"): (80, 80),
        (HARD, "fedsam"): (70, 72),
        (EASY, "fedsam"): (90, 94),
    }
    for (setting, method), values in finals.items():
        write(tmp_path, CellAddress(setting, method), "metrics", metrics(values))
    return tidy_in(tmp_path, quick)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"methods": ["fedavg", "fedsam", "scaffold", "fedgf", "fedgamma"]}, False),
        ({"methods": ["fedavg", "fedsam", "scaffold", "fedgf", "fedgamma"], "bands": True}, True),
        ({"bands": False}, False),
    ],
)
def test_bands_are_drawn_for_few_lines_or_on_request(
    fields: dict[str, Any], expected: bool, two: Tidy, quick: Experiment
) -> None:
    shown = layout(PANEL, **fields).fitted(quick)
    (axes,) = panels(figures.draw(shown, two))
    assert len(axes.collections) == (2 if expected else 0), "two methods have data"
    assert ("bands" in words(figures.caption(shown, two))) == expected


def test_a_line_per_method_through_the_means_of_final_values(two: Tidy) -> None:
    shown = layout(PANEL)
    (axes,) = panels(figures.draw(shown, two))
    assert [line(axes, 0), line(axes, 1)] == [[(0.1, 65), (0.6, 80)], [(0.1, 71), (0.6, 92)]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("α", "Test accuracy (%)")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.6"]
    caption = words(figures.caption(shown, two))
    assert "Points: mean over 2 seeds; bands: ± one sample standard deviation." in caption
    assert "Values: after the last round. " in caption
    assert "2 of 3 seeds" in caption


def test_the_rule_of_the_layout_says_which_value_counts(two: Tidy) -> None:
    shown = layout(PANEL, final={"rule": "mean_last_n", "n": 2})
    (axes,) = panels(figures.draw(shown, two))
    assert line(axes) == [(0.1, 48.75), (0.6, 60)], "evaluated half way and at the end"
    assert "Values: mean over the last 2 evaluations." in words(figures.caption(shown, two))


def test_what_is_requested_in_place_of_the_protocol_is_reported(two: Tidy) -> None:
    experiment = two.experiment.model_copy(update={"report": "best"})
    shown = with_requested_value(layout(PANEL), experiment)
    caption = words(figures.caption(shown, replace(two, experiment=experiment)))
    assert "Values, as requested instead of the figure's own protocol: best of all evaluations" in caption


def test_panels_share_what_the_figure_selects(quick: Experiment) -> None:
    """What a point selects goes before it."""
    place = {"dataset": "digits", "partition": "dirichlet-0.6", "participation": "4-of-20"}
    panel = {"x": "α", "levels": ["fedsam"], "points": POINTS[:1]}
    shared = layout(panel, select=place)
    assert shared.cells(quick) == (CellAddress(HARD, "fedavg"), CellAddress(EASY, "fedsam"))


def test_a_suffix_names_another_entry_in_the_place_of_the_method(tmp_path: Path, quick: Experiment) -> None:
    for method, final in (("fedlesam", 50), ("fedlesam_d", 60), ("fedavg", 40)):
        write(tmp_path, CellAddress(HARD, method), "metrics", metrics([final]))
    points = [{"x": 0.01}, {"x": 10, "suffix": "_d"}]
    panel = {"x": "ρ", "scale": "log", "select": {"partition": "dirichlet-0.1", "participation": "4-of-20"},
             "levels": ["fedavg"], "points": points}  # fmt: skip
    shown = layout(panel, methods=["fedlesam", "fedavg"])
    figure = figures.draw(shown, tidy_in(tmp_path, quick))
    (axes,) = panels(figure)
    assert line(axes) == [(0.01, 50), (10, 60)]
    assert axes.get_xscale() == "log"
    assert list(axes.lines[2].get_ydata()) == [40, 40], "the level"
    assert {cell.method for cell in shown.cells(quick)} == {"fedlesam", "fedlesam_d", "fedavg"}
    assert "Horizontal lines" in words(figures.caption(shown, tidy_in(tmp_path, quick)))


def test_points_and_levels_are_means_over_settings_seed_by_seed(two: Tidy) -> None:
    """Fedavg: 60 and 80 with seed 0, 70 and 80 with seed 1; a run that diverged leaves no mean."""
    means = [{"partition": "dirichlet-0.1"}, {"partition": "dirichlet-0.6"}]
    panel = {"x": "ρ", "points": [{"x": 1}], "select": {"participation": "4-of-20"}, "mean_of": means}
    shown = layout({**panel, "levels": ["fedsam"]})
    (axes,) = panels(figures.draw(shown, two))
    assert line(axes) == [(1, 72.5)]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() - band.min() == pytest.approx(2 * 5 / 2**0.5), "the deviation of 70 and 75"
    assert list(axes.lines[2].get_ydata()) == [81.5, 81.5], "the level"
    assert {cell.setting for cell in shown.cells(two.experiment)} == {HARD, EASY}
    write(two.results, CellAddress(HARD, "fedavg"), "metrics", metrics([60, 70], diverged={1: 3}))
    (axes,) = panels(figures.draw(shown, two))
    assert [round(float(of_line.get_ydata()[0]), 1) for of_line in axes.lines] == [81.5]


def test_points_evenly_apart_bear_their_values(two: Tidy) -> None:
    (axes,) = panels(figures.draw(layout({**PANEL, "scale": "even"}), two))
    assert [x for x, _ in line(axes)] == [0, 1]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.6"]


def test_a_cell_of_which_a_run_diverged_has_no_point_and_is_named(two: Tidy, tmp_path: Path) -> None:
    write(tmp_path, CellAddress(HARD, "fedsam"), "metrics", metrics([80, 90], diverged={1: 3}))
    figure = figures.draw(layout(PANEL), two)
    (axes,) = panels(figure)
    assert [line(axes, 0), line(axes, 1)] == [[(0.1, 65), (0.6, 80)], [(0.6, 92)]]
    assert "diverged (no point): FedSAM (1 of 4 runs)" in foot(figure)


def test_an_analysis_is_swept_too_and_metrics_are_its_inputs_as_well(two: Tidy, quick: Experiment) -> None:
    for setting, value in ((HARD, 3.0), (EASY, 1.0)):
        rows = pd.DataFrame(
            [(seed, "flatness_discrepancy", value + seed) for seed in (0, 1)], columns=["seed", "metric", "value"]
        )
        write(two.results, CellAddress(setting, "fedsam"), "discrepancy", rows)
    shown = layout(PANEL, methods=["fedsam"], metric="flatness_discrepancy")
    (axes,) = panels(figures.draw(shown, two))
    assert line(axes) == [(0.1, 3.5), (0.6, 1.5)]
    assert {file.name for file in shown.inputs(quick, ResultPaths())} == {"runs.csv", "discrepancy.csv"}
    assert "Values:" not in words(figures.caption(shown, two))


@pytest.mark.parametrize(
    ("panel", "fields", "message"),
    [
        ({"points": POINTS[::-1]}, {}, "x must increase"),
        ({"points": [{"x": 0}], "scale": "log"}, {}, "cannot be drawn on a log scale"),
        ({"methods": ["fedgf"]}, {}, "unknown method of the figure 'fedgf'"),
        ({"axis": "rho", "points": [], "mean_of": [{}]}, {}, "does not allow settings, mean_of or methods"),
        ({}, {"metric": "rounds_to_target"}, "it depends on a target"),
        ({}, {"metric": "test_acuracy"}, "did you mean 'test_accuracy'"),
    ],
)
def test_invalid_layouts_are_refused(panel: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        layout({**PANEL, **panel}, **fields)


def test_a_point_that_the_experiment_does_not_have_is_one_line(quick: Experiment) -> None:
    shown = layout({**PANEL, "points": [{"x": 1, "suffix": "_x", "select": {"partition": "dirichlet-0.1"}}]})
    with pytest.raises(UserError, match=r"unknown method of experiment quick in digits/.*'fedavg_x'"):
        shown.cells(quick)


def test_a_panel_of_one_method_has_a_line_per_setting(two: Tidy) -> None:
    for setting, finals in ((HARD, (10, 20)), (EASY, (50, 60))):
        for suffix, final in zip(("", "_s"), finals, strict=True):
            write(two.results, CellAddress(setting, f"fedlesam{suffix}"), "metrics", metrics([final, final]))
    settings = [{"title": f"α = {a}", "select": {"partition": f"dirichlet-{a}"}} for a in (0.1, 0.6)]
    panel = {"x": "variant", "select": {"participation": "4-of-20"}, "methods": ["fedlesam"], "settings": settings}
    points = [{"x": 1}, {"x": 2, "suffix": "_s"}]
    figure = figures.draw(layout({**panel, "points": points}, methods=["fedlesam"]), two)
    (axes,) = panels(figure)
    assert [line(axes, 0), line(axes, 1)] == [[(1, 10), (2, 20)], [(1, 50), (2, 60)]]
    assert legend(figure) == ["α = 0.1", "α = 0.6"]
    figures.save(figure, two.results / "shown")
    with pytest.raises(UserError, match="a panel with settings must have one method"):
        layout({**panel, "points": points, "methods": None}, methods=["fedlesam", "fedsam"])


def swept(folder: Path, methods: dict[str, Any], **keys: Any) -> Experiment:
    """Quick with these methods, one setting and two seeds."""
    grid = {"partition": [{"name": "dirichlet", "clients": 20, "alpha": 0.1}], "participation": [{"active": 4}]}
    data = {"name": "own", "extends": "quick", "grid": {**grid, "seeds": [0, 1]}, "methods": methods, **keys}
    (folder / "own.yaml").write_text(yaml.safe_dump(data), "utf-8")
    return load_experiment(str(folder / "own.yaml"))


def trained(folder: Path, experiment: Experiment) -> Tidy:
    """Metrics of all its cells: the k-th cell ends at 50 + k."""
    for k, cell in enumerate(experiment.cells().values()):
        write(folder, cell.address, "metrics", metrics([50 + k, 50 + k]), experiment=experiment)
    return tidy_in(folder, experiment)


RHO = {"hyperparameters": {"rho": [0.1, 0.2]}}


def test_lines_of_two_entries_of_a_method_have_two_names(tmp_path: Path) -> None:
    lr = {"training": {"lr": [0.1, 0.2]}}
    methods = {"fedavg": {}, "own": {"name": "fedavg", **lr}, "fedsam": RHO, "b": {"name": "fedsam", **RHO}}
    experiment = swept(tmp_path, methods)
    figure = figures.draw(figures.load_figure("quick", "sweep_accuracy", experiment), trained(tmp_path, experiment))
    assert sorted(legend(figure)) == ["FedAvg", "FedAvg (own)", "FedSAM", "FedSAM (b)"]


def test_lines_are_told_apart_by_entry_and_values_and_not_by_their_text(tmp_path: Path) -> None:
    """The entry fedsam-lr-0.1 is no part of the line of fedsam with the rate 0.1."""
    other = {"name": "fedsam", "hyperparameters": {"rho": [0.3, 0.5]}}
    methods = {"fedsam": {**RHO, "training": {"lr": [0.1, 0.2]}}, "fedsam-lr-0.1": other}
    experiment = swept(tmp_path, methods)
    shown = figures.load_figure("quick", "sweep_accuracy", experiment)
    of_rho = panels(figures.draw(shown, trained(tmp_path, experiment)))[0]
    assert [len(one.get_xdata()) for one in of_rho.lines[::2]] == [2, 2, 2]


def test_more_than_seven_lines_look_different(tmp_path: Path) -> None:
    rates = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08]
    experiment = swept(tmp_path, {"fedsam": {**RHO, "training": {"lr": rates}}})
    shown = figures.load_figure("quick", "sweep_accuracy", experiment)
    looks = [look for line, look in shown.looks(experiment).items() if line.startswith("fedsam: ")]
    assert len(looks) == len(set(looks)) == len(rates) + 2


def test_a_part_without_the_swept_method_has_no_panel(tmp_path: Path) -> None:
    parts = {"a": {}, "b": {"only": ["fedavg", "fedprox"]}, "c": {"only": ["fedsam"]}}
    fedprox = {"hyperparameters": {"lam": 0.1}}
    experiment = swept(tmp_path, {"fedavg": {}, "fedprox": fedprox, "fedsam": RHO}, parts=parts)
    shown = figures.load_figure("quick", "sweep_accuracy", experiment)
    first, last = panels(figures.draw(shown, trained(tmp_path, experiment)))
    assert (first.get_title(), last.get_title()) == ("a, Dirichlet 0.1", "c, Dirichlet 0.1")
    assert (len(first.lines), len(last.lines)) == (3, 2), "c has no level"
