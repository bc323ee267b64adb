"""Figures: each kind draws what the tidy files say, labels its axes, and gives the same bytes again."""

import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.analyses import parse_analysis
from analysis.figures import draw as figures
from analysis.figures.base import LEGEND, STYLE, TEXT_WIDTH, FigureLayout, legend_columns, new_figure, plain_numbers
from analysis.figures.draw import KINDS
from analysis.figures.palette import style, styles
from analysis.layouts.layout import layout_names
from analysis.layouts.tidy import Tidy
from analysis.layouts.titles import setting_title
from analysis.measures.forward_passes import DIFFERENCES
from analysis.report.figures import Figures
from analysis.report.requested import RequestedExperiment
from analysis.report.tables import Tables
from bench.experiments.address import CellAddress, Setting
from bench.experiments.experiment import Experiment, load_experiment
from bench.experiments.files import PAPER_TABLES, read_yaml
from bench.input.errors import UserError
from bench.methods.catalog import CATALOG
from tests.analysis.conftest import HARD, metrics, tidy_in, words, write

EASY = Setting("digits", "dirichlet-0.6", "4-of-20")


NAMES = [name for name in layout_names("quick", "figures") if not name.startswith("sweep")]
"""The figures of quick, which has no sweeps."""


def drawn(name: str, tidy: Tidy) -> Figure:
    return figures.draw(figures.load_figure("quick", name), tidy)


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.get_axes() if axes.get_label() != "<colorbar>"]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for part in [figure, *figure.subfigs] for text in part.texts]


def legend(figure: Figure) -> list[str]:
    (found,) = [one for part in [figure, *figure.subfigs] for one in part.legends]
    return [text.get_text() for text in found.get_texts()]


def lines(axes: Axes) -> list[tuple[Any, Any]]:
    return [(line.get_xdata(), line.get_ydata()) for line in axes.lines if len(line.get_xdata()) > 1]


def band(axes: Axes) -> tuple[float, float]:
    """Lowest and highest value of the axes' only band."""
    (found,) = axes.collections
    extent = found.get_datalim(axes.transData)
    return extent.y0, extent.y1


def drift(rounds: dict[int, tuple[list[float], list[float]]]) -> pd.DataFrame:
    """Drift and sharpness of every seed, by round."""
    rows = [(s, r, *pair) for r, values in rounds.items() for s, pair in enumerate(zip(*values, strict=True))]
    table = pd.DataFrame(rows, columns=["seed", "round", "perturbation_drift", "sharpness"])
    return table.assign(cosine=0.0, local_norm=0.1, gradient_norm=1.0)


def test_convergence_has_a_panel_per_setting(realistic: Tidy) -> None:
    figure = drawn("convergence", realistic)
    assert [axes.get_title() for axes in panels(figure)] == [
        "Dirichlet 0.6, 4 of 20 clients",
        "Dirichlet 0.1, 4 of 20 clients",
        "Dirichlet 0.6, 10 of 20 clients",
        "Dirichlet 0.1, 10 of 20 clients",
    ]
    assert {axes.get_xlabel() for axes in panels(figure)[2:]} == {"Communication round"}
    assert panels(figure)[0].get_ylabel() == "Test accuracy (%)"
    assert [len(lines(axes)) for axes in panels(figure)] == [12, 11, 12, 11]
    assert len(legend(figure)) == 12
    note = " ".join(texts(figure)[0].split())
    assert "not run: FedGF (Dirichlet 0.1, 4 of 20 clients and Dirichlet 0.1, 10 of 20 clients)" in note
    assert "FedDyn (1 of 12 runs)" in note


def test_convergence_draws_mean_and_band(tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellAddress(HARD, "fedavg"), "metrics", metrics([80, 90]))
    axes = panels(drawn("convergence", tidy_in(tmp_path, quick)))[1]
    ((x, y),) = lines(axes)
    assert (list(x), list(y)) == ([2, 4], [42.5, 85.0])
    # The band at round 4: 85 ± 10 / √2.
    extent = axes.collections[0].get_datalim(axes.transData)
    assert extent.y1 == pytest.approx(85 + 10 / 2**0.5)


def test_a_diverged_curve_ends_at_a_cross(realistic: Tidy) -> None:
    axes = panels(drawn("convergence", realistic))[1]
    crosses = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "x"]
    assert crosses == [34]  # diverged in round 35, evaluated every second round


def test_the_cross_of_a_single_point_stands_on_it(tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellAddress(HARD, "fedavg"), "metrics", metrics([80, 90], diverged={1: 3}))
    figure = drawn("convergence", tidy_in(tmp_path, quick))
    (mark, cross) = panels(figure)[1].lines
    assert cross.get_marker() == "x"
    assert (mark.get_xydata() == cross.get_xydata()).all()


# Finals of runs with ten evaluations, which they have reached after the first `early` ones, and where the axis then
# starts and ends.
@pytest.mark.parametrize(
    ("finals", "early", "y_min", "y_max"),
    [
        ({"fedavg": 80, "fedsam": 90}, 2, 50, 95),  # both curves begin below 50, and end between the limits
        ({"fedavg": 80, "fedsam": 90}, 3, None, 95),  # 3 of 10 points are below 50
        ({"fedavg": 20, "fedsam": 30}, 2, None, 95),
        ({"fedavg": 20, "fedsam": 90}, 2, None, 95),
        ({"fedavg": 97, "fedsam": 90}, 2, 50, None),
    ],
)
def test_limits_of_the_layout_hide_no_curve(
    finals: dict[str, float], early: int, y_min: float | None, y_max: float | None, tmp_path: Path, quick: Experiment
) -> None:
    for method, final in finals.items():
        rising = metrics([final, final], rounds=10, every=1)
        rising["test_accuracy"] = rising["test_accuracy"].mask(rising["round"] > early, final)
        write(tmp_path, CellAddress(HARD, method), "metrics", rising)
    layout = figures.load_figure("quick", "convergence").model_copy(update={"y_min": 50, "y_max": 95})
    axes = panels(figures.draw(layout, tidy_in(tmp_path, quick)))[1]
    low, high = axes.get_ylim()
    values = [value for _, y in lines(axes) for value in y]
    assert low == y_min if y_min else min(values) - 10 < low < min(values)
    assert high == y_max if y_max else max(values) < high < max(values) + 10
    hidden = y_min is not None and min(values) < y_min
    assert ("Values below 50 are not shown." in words(figures.caption(layout, tidy_in(tmp_path, quick)))) == hidden


def test_long_titles_do_not_cover_those_beside_them() -> None:
    figure = Figure(figsize=(6.75, 2), layout="constrained")
    first, second = figure.subplots(1, 2)
    first.set_title("IID, 600 clients, each with probability 0.4, in the first of two parts")
    second.set_title("LDA")
    figure.draw_without_rendering()
    assert first.title.get_window_extent().width > first.get_window_extent().width
    assert figures.break_titles(figure)
    figure.draw_without_rendering()
    assert first.title.get_window_extent().width <= first.get_window_extent().width
    assert second.get_title() == "LDA"
    assert not figures.break_titles(figure)


def test_captions_name_the_methods_beyond_the_largest_number(realistic: Tidy) -> None:
    found = {name: figures.caption(figures.load_figure("quick", name), realistic).notes for name in NAMES}
    hidden = {name: note for name, notes in found.items() for note in notes if note.startswith("Methods not shown")}
    assert hidden.keys() == {"drift", "perturbation", "perturbation_rise", "surfaces"}
    assert hidden["drift"] == "Methods not shown: SCAFFOLD, FedDyn."
    assert hidden["surfaces"].count(",") == len(realistic.experiment.methods) - 4 - 1


@pytest.mark.parametrize(("rounds", "has_points"), [(5, True), (6, False)])
def test_lines_through_few_points_show_them(rounds: int, has_points: bool, tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellAddress(HARD, "fedsam"), "metrics", metrics([80], rounds=rounds, every=1))
    (line,) = panels(drawn("convergence", tidy_in(tmp_path, quick)))[1].lines
    assert (line.get_marker() == ".") == has_points


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 5, 30])
def test_ticks_of_rounds_are_whole_numbers(rounds: int, tmp_path: Path, quick: Experiment) -> None:
    cell = CellAddress(HARD, "fedsam")
    write(tmp_path, cell, "metrics", metrics([80, 90], rounds=rounds, every=1))
    write(tmp_path, cell, "drift", drift({r: ([0.3, 0.4], [1, 2]) for r in range(1, rounds + 1)}))
    for name in ("convergence", "drift"):
        for axes in panels(drawn(name, tidy_in(tmp_path, quick))):
            if axes.lines:
                low, high = axes.get_xlim()
                ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
                assert ticks
                assert all(tick == round(tick) for tick in ticks)


def test_single_points_are_marks_with_bars_that_hide_no_other(tmp_path: Path, quick: Experiment) -> None:
    for method in ("fedsam", "fedlesam"):
        write(tmp_path, CellAddress(HARD, method), "drift", drift({5: ([0.3, 0.5], [1, 3])}))
    tidy = tidy_in(tmp_path, quick)
    for axes, mean, std in zip(panels(drawn("drift", tidy)), (0.4, 2), (0.02**0.5, 2**0.5), strict=True):
        assert [line.get_marker() for line in axes.lines] == ["_", "_"]
        (x, y), (other_x, other_y) = (line.get_xydata()[0] for line in axes.lines)
        assert y == other_y == pytest.approx(mean)
        assert x < other_x
        assert round(x) == round(other_x) == 5
        low, high = axes.get_ylim()
        for bars, place in zip(axes.collections, (x, other_x), strict=True):
            ((start, end),) = bars.get_segments()
            assert [start[0], end[0]] == [place, place]
            assert [start[1], end[1]] == pytest.approx([mean - std, mean + std])
            assert low < start[1] < end[1] < high
    caption = words(figures.caption(figures.load_figure("quick", "drift"), tidy))
    assert "Single points: marks and bars instead" in caption


def test_curves_have_no_marks(realistic: Tidy) -> None:
    assert all(line.get_marker() == "" for axes in panels(drawn("drift", realistic)) for line in axes.lines)
    assert "Single points" not in words(figures.caption(figures.load_figure("quick", "drift"), realistic))


def test_bands_end_where_values_do(tmp_path: Path, quick: Experiment) -> None:
    """± one standard deviation of skewed values reaches beyond what accuracy, drift and loss can be.

    Sharpness is an estimate that may be negative, so its band stays whole.
    """
    cell = CellAddress(HARD, "fedsam")
    write(tmp_path, cell, "metrics", metrics([1, 1, 100]))
    write(tmp_path, CellAddress(EASY, "fedsam"), "metrics", metrics([1, 100, 100]))
    write(tmp_path, cell, "drift", drift({r: ([0, 0, 0.9], [0, 0, 3]) for r in (5, 10)}))
    losses = [(s, "random", x, 0, loss) for x in (1, 2) for s, loss in enumerate((0.01, 0.01, 3))]
    columns = ["seed", "direction", "radius", "draw", "loss"]
    write(tmp_path, cell, "perturbation", pd.DataFrame(losses, columns=columns))
    tidy = tidy_in(tmp_path, quick)
    easy, hard, _, _ = panels(drawn("convergence", tidy))
    assert (band(hard)[0], band(easy)[1]) == (0, 100)
    left, right = panels(drawn("drift", tidy))
    assert band(left) == (0, pytest.approx(0.3 + 0.27**0.5))
    assert band(right) == (pytest.approx(1 - 3**0.5), pytest.approx(1 + 3**0.5))
    low, high = band(panels(drawn("perturbation", tidy))[1])
    assert (low, high) == (0, pytest.approx(np.mean([0.01, 0.01, 3]) + np.std([0.01, 0.01, 3], ddof=1)))
    assert "cut at zero" in words(figures.caption(figures.load_figure("quick", "perturbation"), tidy))


def test_bands_are_drawn_for_few_lines_or_where_asked(tmp_path: Path, quick: Experiment) -> None:
    for count, method in enumerate(["fedavg", "fedsam", "fedasam", "fedlesam", "fedgf"], start=1):
        write(tmp_path, CellAddress(HARD, method), "metrics", metrics([80, 90]))
        tidy, layout = tidy_in(tmp_path, quick), figures.load_figure("quick", "convergence")
        for asked in (None, True, False):
            shown = layout.model_copy(update={"bands": asked})
            has = count <= 4 if asked is None else asked
            _, hard, _, _ = panels(figures.draw(shown, tidy))
            assert len(hard.collections) == count * has
            assert len(lines(hard)) == count
            assert ("bands: ±" in words(figures.caption(shown, tidy))) == has


def test_the_axis_of_drift_shows_where_the_data_lie(tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellAddress(HARD, "fedsam"), "drift", drift({5: ([0.6, 0.62], [1, 2]), 10: ([0.7, 0.72], [1, 2])}))
    left, _ = panels(drawn("drift", tidy_in(tmp_path, quick)))
    low, high = left.get_ylim()
    assert 0.5 < low < 0.6
    assert 0.72 < high < 0.8


def test_drift_has_no_line_for_methods_that_do_not_perturb(realistic: Tidy) -> None:
    left, right = panels(drawn("drift", realistic))
    assert (left.get_ylabel(), right.get_ylabel()) == ("Perturbation drift PD (0 to 1)", "Global sharpness")
    assert left.get_xlabel() == right.get_xlabel() == "Communication round"
    assert (len(lines(left)), len(lines(right))) == (8, 9)  # FedAvg on the right only; FedGF not run
    assert list(lines(left)[0][0]) == [1, 10, 20, 30, 40, 50, 60]


def test_surfaces_share_their_range(realistic: Tidy) -> None:
    figure = drawn("surfaces", realistic)
    deep, flat = panels(figure)[::2], panels(figure)[1::2]
    assert [axes.get_title() for axes in deep] == ["FedAvg", "FedSAM", "FedGAMMA", "FedLESAM-D"]
    assert len({axes.get_zlim() for axes in deep}) == 1
    assert {axes.get_xlabel() for axes in flat} == {"Direction a"}
    assert flat[0].get_ylabel() == "Direction b"
    (bar,) = [axes for axes in figure.get_axes() if axes.get_label() == "<colorbar>"]
    assert bar.get_ylabel() == "Loss (log colour scale)"
    low, high = deep[0].get_zlim()
    assert 3 <= sum(low <= tick <= high for tick in deep[0].get_zticks()) <= 5
    assert "Surfaces and λ_max may order methods differently" in words(
        figures.caption(figures.load_figure("quick", "surfaces"), realistic)
    )


def test_colours_of_surfaces_cover_the_losses_that_occur(realistic: Tidy) -> None:
    """Also of nearly flat ones; the numbers of the colour bar have one format."""
    for method in ("fedavg", "fedsam", "fedgamma", "fedlesam_d"):
        cell = CellAddress(HARD, method)
        plane = pd.read_csv(realistic.path("surface", cell)).query("seed == 0")
        plane["loss"] = np.linspace(1.06, 1.19, len(plane))
        write(realistic.results, cell, "surface", plane[["seed", "a", "b", "loss", "error"]])
    figure = drawn("surfaces", realistic)
    figure.draw_without_rendering()
    (bar,) = [axes for axes in figure.get_axes() if axes.get_label() == "<colorbar>"]
    assert bar.get_ylim() == pytest.approx((1.06, 1.19))
    numbers = [float(label.get_text()) for label in bar.get_yticklabels(which="both")]
    shown = [number for number in numbers if 1.06 <= number <= 1.19]
    assert len(shown) > 2
    assert np.diff(shown) == pytest.approx(shown[1] - shown[0])


def test_surfaces_of_a_seed_without_data_or_infinite_losses(realistic: Tidy) -> None:
    layout = figures.load_figure("quick", "surfaces")
    with pytest.raises(UserError, match=r"no surface\.csv of seed 7"):
        figures.draw(layout.model_copy(update={"seed": 7}), realistic)
    cell = CellAddress(HARD, "fedavg")
    plane = pd.read_csv(realistic.results / f"analysis/quick/{cell.path}/surface.csv")
    plane.loc[:5, "loss"] = np.inf
    write(realistic.results, cell, "surface", plane[["seed", "a", "b", "loss", "error"]])
    figures.draw(layout, realistic)


def test_the_caption_of_a_surface_in_bf16_says_how_exact_it_is(realistic: Tidy) -> None:
    layout, cell = figures.load_figure("quick", "surfaces"), CellAddress(HARD, "fedavg")
    path = realistic.path("surface", cell)
    pd.read_csv(path).assign(**dict(zip(DIFFERENCES, (5, 0.03, 0.012, 0.5), strict=True))).to_csv(path, index=False)
    assert (
        "surface was computed in bf16: at 5 points of each run it differs from fp32 by at most 0.03 in the loss "
        "(relatively 1.2 %) and 0.5 percentage points in the error."
    ) in words(figures.caption(layout, realistic))


def test_perturbation_is_the_mean_over_draws_and_seeds(realistic: Tidy) -> None:
    first, second = panels(drawn("perturbation", realistic))
    assert first.get_xlabel() == second.get_xlabel() == "Perturbation radius ‖δ‖₂"
    assert first.get_ylabel() == "Loss F(w + δ)"
    data = pd.read_csv(realistic.results / f"analysis/quick/{HARD.path}/fedavg/perturbation.csv")
    assert list(lines(second)[0][1]) == pytest.approx(
        list(data[data["direction"] == "random"].groupby("radius")["loss"].mean())
    )
    assert (len(lines(first)), len(lines(second))) == (6, 5)
    caption = words(figures.caption(figures.load_figure("quick", "perturbation"), realistic))
    assert "mean over 5 random directions for each of 3 seeds" in caption


def test_the_rise_of_the_loss_starts_at_zero(realistic: Tidy) -> None:
    loss, rise = (panels(drawn(name, realistic)) for name in ("perturbation", "perturbation_rise"))
    assert rise[0].get_ylabel() == "Rise of the loss F(w + δ) − F(w)"
    for (radii, losses), (same, rises) in zip(lines(loss[1]), lines(rise[1]), strict=True):
        assert list(radii) == list(same)
        assert list(rises) == pytest.approx(list(losses - losses[0]), abs=1e-12)
    layout = figures.load_figure("quick", "perturbation_rise")
    with pytest.raises(UserError, match=r"^show: rise needs 0 among the radii of the analysis perturbation in"):
        layout.check(realistic.experiment, parse_analysis("perturbation", {"radii": [1, 2]}))
    for method in layout.methods:
        if (path := realistic.path("perturbation", CellAddress(HARD, method))).is_file():
            rows = pd.read_csv(path)
            rows[rows["radius"] > 0].to_csv(path, index=False)
    hard = layout.model_copy(update={"panels": layout.panels[1:]})
    with pytest.raises(UserError, match="show: rise needs losses at radius 0"):
        figures.draw(hard, realistic)


def test_a_method_that_never_had_a_value_has_no_curve_that_ends(tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellAddress(HARD, "fedavg"), "metrics", metrics([80, 90], diverged={1: 3}))
    write(tmp_path, CellAddress(HARD, "fedsam"), "metrics", metrics([80, 90], diverged={0: 1, 1: 1}))
    note = foot(drawn("convergence", tidy_in(tmp_path, quick)))
    assert "diverged (the curve ends at a cross): FedAvg (1 of 2 runs)" in note
    early = "diverged (before the first value that is shown, so there is no curve): FedSAM (2 of 2 runs)"
    assert early in note


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


def differences_of(results: Path, finals: dict[Setting, dict[str, list[float]]], **options: Any) -> None:
    for setting, by_method in finals.items():
        for method, values in by_method.items():
            write(results, CellAddress(setting, method), "metrics", metrics(values, **options))


def foot(figure: Figure) -> str:
    return " ".join(" ".join(texts(figure)).split())


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
    assert [len(line.get_xdata()) for line in whole.lines[1:]] == [2, 1, 1], "no large point of FedGF"
    assert len(whole.collections) == 1, "and no interval"
    assert "no mean over all settings: FedGF (no pair in Dirichlet 0.1, 4 of 20 clients)" in foot(figure)
    caption = words(figures.caption(figures.load_figure("quick", "differences"), tidy))
    assert "95 % t-intervals from the spread within settings, which contain the true mean in 94 to 98 %" in caption


def test_a_single_pair_in_one_setting_is_named_where_the_interval_is_missing(tmp_path: Path, quick: Experiment) -> None:
    finals = {
        EASY: {"fedavg": [80.0, 81.0, 79.0], "fedsam": [81.0, 82.0, 79.0]},
        HARD: {"fedavg": [60.0, 61.0, 59.0], "fedsam": [61.0]},
    }
    differences_of(tmp_path, finals)
    figure = drawn("differences", tidy_in(tmp_path, quick))
    assert not panels(figure)[0].collections
    assert "no interval over all settings: FedSAM (one pair in Dirichlet 0.1, 4 of 20 clients)" in foot(figure)


def test_one_seed_has_no_intervals_and_no_means_over_seeds(tmp_path: Path, quick: Experiment) -> None:
    differences_of(tmp_path, {place: {"fedavg": [80.0], "fedsam": [81.0]} for place in (EASY, HARD)})
    tidy = tidy_in(tmp_path, quick)
    figure = drawn("differences", tidy)
    caption = words(figures.caption(figures.load_figure("quick", "differences"), tidy))
    assert "interval" not in caption + foot(figure)
    assert "over seeds" not in caption
    assert "1 seed. Points: runs; in the panel of all settings, large points: means over settings." in caption
    assert not any(axes.collections for axes in panels(figure))


def test_labels_show_the_counts(realistic: Tidy) -> None:
    figure = drawn("labels", realistic)
    first, second = panels(figure)
    assert [axes.get_title() for axes in (first, second)] == ["Dirichlet 0.6", "Dirichlet 0.1"]
    assert (first.get_xlabel(), first.get_ylabel()) == ("Class", "Client")
    shown = second.collections[0].get_array()
    assert shown.shape == (20, 10)
    assert shown.sum() == 20 * 72
    data = pd.read_csv(realistic.results / f"partitions/quick/{HARD.path}/fedavg/seed-0/partition.csv.gz")
    expected = len(data[(data["client"] == 3) & (data["label"] == 5)])
    assert np.ma.filled(shown, 0)[3, 5] == expected
    (bar,) = [axes for axes in figure.get_axes() if axes.get_label() == "<colorbar>"]
    assert bar.get_ylabel() == "Training images"


def test_labels_do_not_count_twice_and_a_missing_partition_is_an_empty_panel(realistic: Tidy) -> None:
    both = figures.load_figure("quick", "labels").model_copy(update={"methods": ("fedavg", "fedgf")})
    first, second = panels(figures.draw(both, realistic))
    assert first.collections[0].get_array().sum() == second.collections[0].get_array().sum() == 20 * 72
    (realistic.results / f"partitions/quick/{HARD.path}/fedavg/seed-0/partition.csv.gz").unlink()
    figure = figures.draw(both, realistic)
    assert panels(figure)[1].collections[0].get_array().count() == 0
    assert (
        "not run: FedGF (Dirichlet 0.1, 4 of 20 clients); not analysed: FedAvg (Dirichlet 0.1, 4 of 20 clients)"
        in " ".join(texts(figure)[0].split())
    )


def test_labels_of_a_hundred_clients_lie_along_the_x_axis(realistic: Tidy) -> None:
    for setting in (HARD, EASY):
        path = realistic.results / f"partitions/quick/{setting.path}/fedavg/seed-0/partition.csv.gz"
        table = pd.read_csv(path)
        pd.concat([table.assign(client=table["client"] + 20 * k) for k in range(5)]).to_csv(path, index=False)
    figure = drawn("labels", realistic)
    first, second = panels(figure)
    assert (second.get_xlabel(), second.get_ylabel()) == ("Client", "Class")
    assert second.collections[0].get_array().shape == (10, 100)
    assert not second.texts, "cells are too small for numbers"
    assert first.get_position().y0 > second.get_position().y0
    assert figure.get_figheight() < 9


@pytest.mark.parametrize("name", NAMES)
def test_type_is_readable_and_bytes_are_the_same_again(name: str, realistic: Tidy, tmp_path: Path) -> None:
    figure = drawn(name, realistic)
    for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize") and artist.get_text()):
        assert text.get_fontsize() >= 7
    first = figures.save(figure, tmp_path / "one" / name)
    again = figures.save(drawn(name, realistic), tmp_path / "two" / name)
    assert [path.suffix for path in first] == [".png", ".pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert b"CreationDate" not in first[1].read_bytes()


def test_saved_figures_are_laid_out_at_rounded_places(realistic: Tidy, tmp_path: Path) -> None:
    # The layout solver's last digits vary now and then, which a comparison of bytes meets only by luck.
    figure = drawn("convergence", realistic)
    figures.save(figure, tmp_path / "f")
    places = [axes.get_position(original=True).get_points() for axes in figure.get_axes()]
    places += [part.bbox_relative.get_points() for part in figure.subfigs]
    assert all((place == place.round(6)).all() for place in places)


@pytest.mark.parametrize("name", NAMES)
def test_no_data_at_all_is_one_line(name: str, quick: Experiment, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to draw for") as error:
        drawn(name, tidy_in(tmp_path, quick))
    assert "\n" not in str(error.value)


def test_one_experiment_has_every_kind_and_every_analysis() -> None:
    """What it does not show would be drawn by nobody."""
    folder, requested = PAPER_TABLES / "analyses", RequestedExperiment("analyses", Path("results"))
    assert {read_yaml(file)["kind"] for file in folder.glob("figures/*.yaml")} == set(KINDS)
    needed = {path.stem for name in Tables(requested).names() for path in Tables(requested).inputs(name)}
    needed |= {path.stem for name in Figures(requested).names() for path in Figures(requested).inputs(name)}
    assert needed >= set(requested.analyses)


@pytest.mark.parametrize("kind", KINDS)
def test_a_typo_in_a_layout_is_one_line(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "experiments.yaml"
    quick = (PAPER_TABLES / "quick" / "experiments.yaml").read_text(encoding="utf-8")
    file.write_text(quick.replace("name: quick", "name: mine"), encoding="utf-8")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "f.yaml").write_text(f"kind: {kind}\ntitel: x\ncaption: c\nmetric: test_loss\n", "utf-8")
    with pytest.raises(UserError, match=r"f\.yaml: ") as error:
        figures.load_figure(str(file), "f")
    lines = [line for line in str(error.value).splitlines() if "'metric'" not in line]  # which only some kinds have
    assert re.search(r"unknown key of [\w ]+ 'titel'; did you mean 'title'", lines[-1])
    assert "title is missing" not in str(error.value), "it is the mistyped one"
    (tmp_path / "figures" / "f.yaml").write_text(f"kind: {kind}x\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"unknown kind of figure in .*; did you mean '{kind}'"):
        figures.load_figure(str(file), "f")


def test_every_method_of_the_catalog_looks_different() -> None:
    looks = [style(entry) for entry in CATALOG.values()]
    assert len(set(looks)) == len(looks)
    for look in looks:
        assert matplotlib.colors.is_color_like(look.colour)


def test_hue_shows_the_perturbation_and_line_the_correction() -> None:
    dashes = {name: style(entry).dashes for name, entry in CATALOG.items()}
    assert dashes["fedsam"] == dashes["fedlesam"] == dashes["fedavg"]
    assert dashes["fedgamma"] == dashes["fedlesam_s"] == dashes["scaffold"]
    hues = [
        matplotlib.colors.rgb_to_hsv(matplotlib.colors.to_rgb(style(CATALOG[n]).colour))[0]
        for n in ("fedlesam", "fedlesam_s", "fedlesam_d")
    ]
    assert hues == pytest.approx([hues[0]] * 3, abs=0.01)


def test_variants_of_one_method_differ_in_markers_only(quick: Experiment) -> None:
    variant = quick.methods["fedsam"].model_copy(update={"name": "fedsam"})
    looks = styles(quick.model_copy(update={"methods": {**quick.methods, "fedsam_small": variant}}))
    one, other = looks["fedsam"], looks["fedsam_small"]
    assert (one.colour, one.dashes) == (other.colour, other.dashes)
    assert one.marker != other.marker


def test_entries_of_one_method_have_different_colours_without_other_methods() -> None:
    experiment, shown = load_experiment("fedtoga"), ["fedtoga", "fedtoga.kappa2", "fedtoga.kappa4"]
    assert len({look.colour for look in styles(experiment, shown).values()}) == len(shown)
    with_other = styles(experiment, [*shown, "fedavg"])
    assert len({with_other[label].colour for label in shown}) == 1
    assert styles(experiment, ["fedtoga"])["fedtoga"] == with_other["fedtoga"], "a single line looks as everywhere"


def test_layouts_are_figure_layouts() -> None:
    assert all(issubclass(layout, FigureLayout) for layout in KINDS.values())


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1.04, 1.16, ["1.05", "1.075", "1.1", "1.125", "1.15"]),
        (14, 47, ["20", "30", "40"]),
        (0.8, 12, ["1", "2", "5", "10"]),
        (1, 200_000, ["1", "10", "100", "1,000", "10,000", "100,000"]),
    ],
)
def test_logarithmic_axes_have_plain_numbers(low: float, high: float, labels: list[str]) -> None:
    axes = Figure().subplots()
    axes.set(xscale="log", xlim=(low, high))
    plain_numbers(axes.xaxis, low, high)
    axes.figure.draw_without_rendering()
    shown = [label.get_text() for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert shown == labels


@pytest.mark.parametrize(
    "names", [["FedAvg"], ["FedAvg", "FedSAM"] * 6, ["FedLESAM-D (fedlesam_d)"] * 40, ["FedASAM + SWA"] * 6]
)
def test_a_legend_is_no_wider_than_its_figure(names: list[str]) -> None:
    columns = legend_columns(names, TEXT_WIDTH)
    assert columns == {1: 1, 12: 6, 40: 3, 6: 3}[len(names)], "six labels need two rows, and three columns suffice"
    with matplotlib.rc_context(STYLE):
        figure, body = new_figure(TEXT_WIDTH, 3)
        box = body.legend(handles=[Line2D([], [], label=name) for name in names], ncols=columns, **LEGEND)
        figure.draw_without_rendering()
    assert box.get_window_extent().width < figure.bbox.width


@pytest.mark.parametrize(
    ("partition", "participation", "title"),
    [
        ("dirichlet-0.6", "4-of-20", "Dirichlet 0.6, 4 of 20 clients"),
        ("dirichlet-0.6-released", "all-of-20", "Dirichlet 0.6, released, all of 20 clients"),
        ("pam-0.1-10", "bernoulli-0.2-of-20", "PAM 0.1, 10, 20 clients, each with probability 0.2"),
        ("lda-0", "schedule-my-week-of-20", "LDA 0, 20 clients, schedule my-week"),
        ("by_group", "4-of-20", "By group, 4 of 20 clients"),
        ("cifar10_alpha_0.5", "4-of-20", "cifar10_alpha_0.5, 4 of 20 clients"),
    ],
)
def test_settings_have_titles_in_words(partition: str, participation: str, title: str) -> None:
    assert setting_title(Setting("digits", partition, participation)) == title


def single(realistic: Tidy, kind: str, **fields: Any) -> Figure:
    """A figure of one panel, of four methods."""
    where = {"partition": "dirichlet-0.1", "participation": "4-of-20"}
    given = {"title": "t", "caption": "c", "methods": ["fedavg", "fedsam", "fedlesam", "fedgf"], **fields}
    layout = KINDS[kind].parse({"kind": kind, **({"panels": [where]} if kind != "drift" else {}), **given})
    return figures.draw(layout, realistic)


def test_losses_along_the_gradient_go_both_ways(realistic: Tidy) -> None:
    (axes,) = panels(single(realistic, "perturbation", direction="gradient"))
    assert "uphill" in axes.get_xlabel()
    ((x, y), *others) = lines(axes)
    assert list(x) == [-1, 0, 1, 2]
    assert y[2] > y[1]
    assert len(others) == 2, "FedGF was not run"


def test_a_direction_that_was_not_requested_is_one_line(realistic: Tidy) -> None:
    for setting in (HARD, EASY):
        for method in ("fedavg", "fedsam", "fedlesam"):
            path = realistic.results / f"analysis/quick/{setting.path}/{method}/perturbation.csv"
            table = pd.read_csv(path)
            table[table["direction"] == "random"].to_csv(path, index=False)
    with pytest.raises(UserError, match=r"without directions: \[gradient\]; add it") as error:
        single(realistic, "perturbation", direction="gradient")
    assert "\n" not in str(error.value)


def test_sharpness_is_the_mean_over_seeds_at_its_radii(realistic: Tidy) -> None:
    (axes,) = panels(single(realistic, "sharpness", scale="log"))
    data = pd.read_csv(realistic.results / f"analysis/quick/{HARD.path}/fedavg/sharpness.csv")
    x, y = lines(axes)[0]
    assert list(x) == [0.1, 0.5, 1]
    assert list(y) == pytest.approx(list(data.groupby("radius")["sharpness"].mean()))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.5", "1"]


def test_a_curve_of_any_column_of_the_metrics(realistic: Tidy) -> None:
    figure = single(realistic, "curves", metric="client_drift", label="Drift", lowest=0)
    (axes,) = [part for part in panels(figure) if part.get_visible()]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("Drift", "Communication round")
    x, y = lines(axes)[0]
    assert list(y) == pytest.approx([0.5 / r for r in x])
    assert axes.get_ylim()[0] < 0.01, "the smallest value that can be is in view"


def test_a_column_that_some_methods_lack(realistic: Tidy) -> None:
    """A broadcast number such as c: only the method that has it gets a curve and a place in the legend."""
    path = realistic.results / f"runs/quick/{HARD.path}/fedsam/metrics.csv"
    table = pd.read_csv(path)
    table.assign(c=table["round"] / 60).to_csv(path, index=False)
    figure = single(realistic, "curves", metric="c")
    assert [len(lines(axes)) for axes in panels(figure) if axes.get_visible()] == [1]
    assert legend(figure) == ["FedSAM"]
    with pytest.raises(UserError, match=r"no run that it shows has numbers in a column 'd' of its metrics\.csv"):
        single(realistic, "curves", metric="d")


def test_drift_shows_the_quantities_that_are_requested(realistic: Tidy) -> None:
    where = {"partition": "dirichlet-0.1", "participation": "4-of-20"}
    figure = single(realistic, "drift", select=where, show=["cosine", "local_norm", "sharpness"])
    shown = [axes for axes in panels(figure) if axes.get_visible()]
    assert [axes.get_ylabel() for axes in shown] == [
        "Cosine of perturbations", "Norm of local perturbations", "Global sharpness",
    ]  # fmt: skip
    assert [len(lines(axes)) for axes in shown] == [2, 2, 3]


def test_cells_that_have_lost_seeds_are_named(realistic: Tidy) -> None:
    """A mean over the seeds that are left is reported as one; the same in the picture and in its caption."""
    cell = CellAddress(HARD, "fedsam")
    path = realistic.path("metrics", cell)
    frame = pd.read_csv(path)
    frame.assign(diverged=(frame["seed"] > 0).astype(int)).to_csv(path, index=False)
    path = realistic.path("drift", cell)
    frame = pd.read_csv(path)
    frame[frame["seed"] == 0].to_csv(path, index=False)
    layout = figures.load_figure("quick", "drift").model_copy(update={"methods": ("fedavg", "fedsam")})
    caption = words(figures.caption(layout, realistic))
    assert "mean over 1 to 3 seeds" in caption
    assert "1 of 3 seeds: FedSAM." in caption
    assert "1 of 3 seeds: FedSAM" in " ".join(texts(figures.draw(layout, realistic)))
    frame[frame["seed"] > 2].to_csv(path, index=False)
    assert "No value: FedSAM." in words(figures.caption(layout, realistic)), "one of its runs has not diverged"
