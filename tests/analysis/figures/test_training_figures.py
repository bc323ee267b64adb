"""Curves over rounds: panels, bands, single points, limits of axes, and ends of diverged runs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, metrics, read_rows, tidy_in, words, write, write_rows
from tests.analysis.figures.drawings import EASY, drawn, drift, foot, legend, lines, panels, single, texts


def band(axes: Axes) -> tuple[float, float]:
    """Lowest and highest value of the axes' only band."""
    (found,) = axes.collections
    extent = found.get_datalim(axes.transData)
    return extent.y0, extent.y1


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


def test_bands_are_drawn_for_few_lines_or_where_requested(tmp_path: Path, quick: Experiment) -> None:
    layout = figures.load_figure("quick", "convergence")
    for count, methods in ((4, ["fedavg", "fedsam", "fedasam", "fedlesam"]), (5, ["fedgf"])):
        for method in methods:
            write(tmp_path, CellAddress(HARD, method), "metrics", metrics([80, 90]))
        tidy = tidy_in(tmp_path, quick)
        for bands in (None, True, False):
            shown = layout.model_copy(update={"bands": bands})
            has = count <= 4 if bands is None else bands
            _, hard, _, _ = panels(figures.draw(shown, tidy))
            assert len(hard.collections) == count * has
            assert len(lines(hard)) == count
            assert ("bands: ±" in words(figures.caption(shown, tidy))) == has


def test_a_method_that_never_had_a_value_has_no_curve_that_ends(tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellAddress(HARD, "fedavg"), "metrics", metrics([80, 90], diverged={1: 3}))
    write(tmp_path, CellAddress(HARD, "fedsam"), "metrics", metrics([80, 90], diverged={0: 1, 1: 1}))
    note = foot(drawn("convergence", tidy_in(tmp_path, quick)))
    assert "diverged (the curve ends at a cross): FedAvg (1 of 2 runs)" in note
    early = "diverged (before the first value that is shown, so there is no curve): FedSAM (2 of 2 runs)"
    assert early in note


def test_a_curve_of_any_column_of_the_metrics(realistic: Tidy) -> None:
    figure = single(realistic, "curves", metric="client_drift", label="Drift", lowest=0)
    (axes,) = panels(figure)
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("Drift", "Communication round")
    x, y = lines(axes)[0]
    assert list(y) == pytest.approx([0.5 / r for r in x])
    assert axes.get_ylim()[0] < 0.01, "the smallest value that can be is in view"


def test_a_column_that_some_methods_lack(realistic: Tidy) -> None:
    """A broadcast number such as c: only the method that has it gets a curve and a place in the legend."""
    path = realistic.path("metrics", CellAddress(HARD, "fedsam"))
    table = read_rows(path)
    write_rows(path, table.assign(c=table["round"] / 60))
    figure = single(realistic, "curves", metric="c")
    assert [len(lines(axes)) for axes in panels(figure)] == [1]
    assert legend(figure) == ["FedSAM"]
    with pytest.raises(UserError, match=r"no run that it shows has numbers in a column 'd' of its metrics\.csv"):
        single(realistic, "curves", metric="d")
    with pytest.raises(UserError, match=r"every = 70, but the runs have 60 rounds"):
        single(realistic, "curves", metric="c", every=70)
