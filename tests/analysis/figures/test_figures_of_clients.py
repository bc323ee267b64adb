"""Figures of clients, classes, corruptions and cost, and smoothed curves: they draw what the tidy files say."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.bars import draw_bars
from fedflat.analysis.figures.base import FigureLayout
from fedflat.analysis.figures.draw import KINDS
from fedflat.analysis.figures.kinds.cost import decimals
from fedflat.analysis.figures.palette import Style
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, metrics, tidy_in, words, write
from tests.analysis.figures.drawings import check_bytes_repeat, check_type, foot, panels
from tests.tiers import thorough

METHODS = ("fedavg", "fedsam", "fedgf")
PLACE = {"partition": "dirichlet-0.1", "participation": "4-of-20"}


def layout(kind: str, **fields: Any) -> FigureLayout:
    place = {"panels": [PLACE]} if kind in ("clients", "convergence", "curves") else {"select": PLACE}
    given = {"kind": kind, "title": "T", "caption": "C.", "methods": METHODS, **place, **fields}
    return KINDS[kind].parse(given)


def clients(scale: float) -> pd.DataFrame:
    """Accuracies scale × 1, ..., scale × 5 of five clients of one seed, and their mean."""
    rows = [(0, "client_test_accuracy", i, scale * (i + 1)) for i in range(5)]
    return pd.DataFrame(
        [*rows, (0, "client_test_accuracy_mean", None, 3 * scale)], columns=["seed", "metric", "client", "value"]
    )


def client_rounds(offset: float) -> pd.DataFrame:
    """Two seeds, three rounds, four classes and two clients; seed 1 is 50 higher."""
    rows = [
        (seed, r, group, k, offset + k + r / 10 + 50 * seed, 7 + k)
        for seed in (0, 1)
        for r in (5, 10, 20)
        for group, count in (("class", 4), ("client", 2))
        for k in range(count)
    ]
    return pd.DataFrame(rows, columns=["seed", "round", "group", "number", "accuracy", "feature_norm"])


def corruptions(accuracy: float, names: list[str]) -> pd.DataFrame:
    """Two seeds, 10 apart; each severity costs 8, each further corruption 1."""
    rows = [
        (seed, "accuracy", "built_in", name, severity, accuracy + 10 * seed - 8 * severity - k)
        for seed in (0, 1)
        for k, name in enumerate(names)
        for severity in (1, 5)
    ]
    rows += [(seed, "accuracy", "built_in", "clean", 0, accuracy + 10 * seed) for seed in (0, 1)]
    rows += [(seed, "corrupted_accuracy", "built_in", None, None, 1.0) for seed in (0, 1)]
    return pd.DataFrame(rows, columns=["seed", "metric", "suite", "corruption", "severity", "value"])


def cost(seconds: float) -> pd.DataFrame:
    values = {
        "transmissions_per_round": 2.0,
        "gradients_per_step": 1.0,
        "seconds_per_round": seconds,
        "train_seconds_per_round": seconds / 4,
    }
    return pd.DataFrame([(0, *item) for item in values.items()], columns=["seed", "metric", "value"])


@pytest.fixture
def tidy(tmp_path: Path, quick: Experiment) -> Tidy:
    """Two methods; FedGF has not been run."""
    for factor, method in ((10, "fedavg"), (20, "fedsam")):
        cell = CellAddress(HARD, method)
        write(tmp_path, cell, "clients", clients(factor))
        write(tmp_path, cell, "client_rounds", client_rounds(factor))
        write(tmp_path, cell, "corruptions", corruptions(50 + factor, ["blots", "haze"]))
        write(tmp_path, cell, "cost", cost(factor))
        write(tmp_path, cell, "metrics", metrics([5 * factor, 5 * factor], rounds=8))
    return tidy_in(tmp_path, quick)


def rows_of(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


EACH = [
    ("clients", {}),
    ("client_rounds", {}),
    ("client_rounds", {"form": "curves"}),
    ("corruptions", {}),
    ("corruptions", {"form": "bars"}),
    ("cost", {}),
    ("convergence", {}),
]


@thorough
@pytest.mark.parametrize(("kind", "fields"), EACH)
def test_equal_data_gives_equal_bytes(kind: str, fields: dict[str, Any], tidy: Tidy, tmp_path: Path) -> None:
    check_bytes_repeat(lambda: figures.draw(layout(kind, **fields), tidy), tmp_path)


@pytest.mark.parametrize(("kind", "fields"), EACH)
def test_type_is_readable_and_missing_methods_are_named(kind: str, fields: dict[str, Any], tidy: Tidy) -> None:
    figure = figures.draw(layout(kind, **fields), tidy)
    caption = figures.caption(layout(kind, **fields), tidy)
    check_type(figure, caption)
    assert "not run: FedGF" in foot(figure)
    assert words(caption).startswith("T. C. ")


def test_clients_have_a_point_each_and_a_box(tidy: Tidy) -> None:
    (axes,) = panels(figures.draw(layout("clients"), tidy))
    assert rows_of(axes) == ["FedAvg", "FedSAM"]
    points = [np.asarray(part.get_offsets()) for part in axes.collections]
    assert [sorted(part[:, 0]) for part in points] == [[10, 20, 30, 40, 50], [20, 40, 60, 80, 100]]
    assert all((abs(part[:, 1] - row) < 0.3).all() for row, part in enumerate(points))
    diamonds = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"]
    assert diamonds == [30, 60]


def test_clients_and_classes_without_a_value_are_counted(tmp_path: Path) -> None:
    quick, cell = load_experiment("quick"), CellAddress(HARD, "fedavg")
    few = tidy_in(tmp_path, quick)
    frame = clients(10)
    write(tmp_path, cell, "clients", frame.assign(value=frame["value"].where(frame["client"] != 3)))
    text = words(figures.caption(layout("clients", methods=["fedavg"]), few))
    assert "mean over clients. Clients whose classes the test set lacks are left out: at most 1 of a run." in text
    rounds = client_rounds(10)
    gone = (rounds["group"] == "class") & (rounds["number"] == 2)
    write(tmp_path, cell, "client_rounds", rounds.assign(accuracy=rounds["accuracy"].mask(gone)))
    text = words(figures.caption(layout("client_rounds", form="curves", methods=["fedavg"]), few))
    assert "mean over 3 of 4 classes, on the test images" in text


def test_parts_of_the_data_are_rows_of_panels(tidy: Tidy) -> None:
    figure = figures.draw(layout("clients", parts=["train", "test"]), tidy)
    assert [axes.get_xlabel().split()[-2] for axes in panels(figure)] == ["training", "test"]
    assert [len(axes.collections) for axes in panels(figure)] == [0, 2]


@pytest.mark.parametrize(("group", "count"), [("class", 4), ("client", 2)])
def test_maps_are_those_of_one_seed(group: str, count: int, tidy: Tidy) -> None:
    chosen = layout("client_rounds", group=group, seed=1)
    drawn = panels(figures.draw(chosen, tidy))
    assert [axes.get_title() for axes in drawn] == ["FedAvg", "FedSAM"]
    values = np.asarray(drawn[1].collections[0].get_array()).reshape(count, 3)
    np.testing.assert_allclose(values, 70 + np.arange(count)[:, None] + [0.5, 1, 2])
    assert {part.get_clim() for axes in drawn for part in axes.collections} == {(0, 100)}
    # A column reaches half way to its neighbours.
    assert drawn[0].get_xlim() == (2.5, 25)
    assert "Seed 1; " in words(figures.caption(chosen, tidy))
    norms = panels(figures.draw(layout("client_rounds", group=group, quantity="feature_norm"), tidy))
    assert norms[0].collections[0].get_clim() == (7, 6 + count)
    with pytest.raises(UserError, match=r"no client_rounds\.csv of seed 2"):
        figures.draw(layout("client_rounds", seed=2), tidy)


def test_curves_of_clients_are_thin_and_that_of_the_test_set_thick(tidy: Tidy) -> None:
    """Seed 0 of FedAvg: client k has 10 + k + r/10, and the four classes 10 to 13 + r/10."""
    chosen = layout("client_rounds", group="client", form="curves")
    drawn = panels(figures.draw(chosen, tidy))
    assert [axes.get_title() for axes in drawn] == ["FedAvg", "FedSAM"]
    *thin, thick = drawn[0].lines
    np.testing.assert_allclose([line.get_ydata() for line in thin], [[10.5, 11, 12], [11.5, 12, 13]])
    assert len({to_hex(line.get_color()) for line in thin}) == 2
    assert list(thick.get_xdata()) == [5, 10, 20]
    np.testing.assert_allclose(thick.get_ydata(), [12, 12.5, 13.5])
    assert thick.get_linewidth() > max(line.get_linewidth() for line in thin)
    assert drawn[0].get_ylabel() == "Accuracy (%)"
    assert "thin lines: one client each; thick black line: mean over 4 classes" in words(figures.caption(chosen, tidy))


def test_the_setting_is_named_at_smoke_scale_too(tmp_path: Path) -> None:
    smoke = load_experiment("quick", {"scale": "smoke", "grid.seeds": [0, 1]})
    cell, tidy = CellAddress(HARD, "fedavg"), tidy_in(tmp_path, smoke)
    write(tmp_path, cell, "client_rounds", client_rounds(10), experiment=smoke)
    titles = figures.draw(layout("client_rounds", methods=["fedavg"]), tidy).get_suptitle().split("\n")
    assert titles == ["Smoke scale: scikit-learn's digits", "Dirichlet 0.1, 4 of 20 clients"]


def test_corruptions_in_the_mean_and_one_by_one(tidy: Tidy) -> None:
    """FedAvg: 60 and 70 clean; 8 less at severity 1, 40 at 5; haze costs one more than blots."""
    left, right = panels(figures.draw(layout("corruptions"), tidy))
    np.testing.assert_allclose(left.lines[0].get_xydata(), [[0, 65], [1, 56.5], [5, 24.5]])
    assert [text.get_text() for text in right.texts] == ["25.0", "24.0", "35.0", "34.0"]
    assert [text.get_fontweight() for text in right.texts] == ["normal", "normal", "bold", "bold"]
    assert rows_of(right) == ["FedAvg", "FedSAM"]
    with pytest.raises(UserError, match="no images of severity 3"):
        figures.draw(layout("corruptions", severity=3), tidy)


def test_corruptions_as_bars(tidy: Tidy) -> None:
    """FedAvg: 60 and 70 clean; 40 less at severity 5, and one more for haze. FedSAM is 10 better."""
    chosen = layout("corruptions", form="bars")
    (axes,) = panels(figures.draw(chosen, tidy))
    assert [bar.get_height() for bar in axes.patches] == [25, 24, 35, 34]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["blots", "haze"]
    left, right = (np.mean([bar.get_x() + bar.get_width() / 2 for bar in axes.patches[k::2]]) for k in (0, 1))
    np.testing.assert_allclose([left, right], [0, 1], atol=1e-12, err_msg="groups are centred on their ticks")
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylabel() == "Accuracy (%), severity 5"
    assert "Severity 5. Bars: mean over 2 seeds" in words(figures.caption(chosen, tidy))
    mild = panels(figures.draw(layout("corruptions", form="bars", severity=1), tidy))[0]
    assert [bar.get_height() for bar in mild.patches] == [57, 56, 67, 66]


def test_bars_of_one_colour_differ_in_their_hatches(tidy: Tidy) -> None:
    """A method with and without SWA has the same perturbation, hence the same colour."""
    same = {name: Style("#0072B2", (0, ())) for name in ("a", "b", "c")} | {"d": Style("#555555", (0, ()))}
    means = pd.DataFrame(np.ones((4, 2)), index=[*same], columns=["x", "y"])
    axes = Figure().subplots()
    draw_bars(axes, means, 0 * means, same)
    looks = {(to_hex(bar.get_facecolor()), bar.get_hatch()) for bar in axes.patches}
    assert len(looks) == 4


def test_the_nineteen_corruptions_of_cifar_c_get_the_whole_width(tidy: Tidy) -> None:
    for method in ("fedavg", "fedsam"):
        write(tidy.results, CellAddress(HARD, method), "corruptions", corruptions(90, [f"c{k}" for k in range(19)]))
    figure = figures.draw(layout("corruptions"), tidy)
    figure.draw_without_rendering()
    left, right = panels(figure)
    assert left.get_position().y0 > right.get_position().y1
    assert len(right.texts) == 2 * 19
    width = right.get_window_extent().width / 19
    assert max(text.get_window_extent().width for text in right.texts) < width


def test_bars_of_cost(tidy: Tidy) -> None:
    shown = layout("cost")
    drawn = panels(figures.draw(shown, tidy))
    widths = [[bar.get_width() for bar in axes.patches] for axes in drawn]
    assert widths == [[2, 2], [1, 1], [10, 2.5, 20, 5]]  # the last with the part of training on each bar
    assert drawn[2].get_xlabel().replace("\n", " ") == "Training and evaluation per round (s), with other load"
    numbers = [[text.get_text() for text in axes.texts] for axes in drawn]
    assert numbers == [["2", "2"], ["1", "1"], ["10", "20"]]
    opaque = [{bar.get_facecolor()[3] for bar in axes.patches} for axes in drawn]
    assert opaque[:2] == [{1}, {1}]
    assert max(opaque[2]) < 0.5, "times are pale, because they do not compare methods"
    assert "they do not compare methods" in words(figures.caption(shown, tidy))
    with pytest.raises(UserError, match="unknown quantity of cost 'second_per_round'; did you mean"):
        layout("cost", quantities=["second_per_round"])


@pytest.mark.parametrize(
    ("values", "digits"),
    [([2, 1], 0), ([0.059, 0.15], 3), ([2.5, 12.25], 1), ([1234.5, 3], 0), ([0, 0], 0), ([0.00021, 0.0011], 5)],
)
def test_numbers_of_a_panel_have_equal_digits(values: list[float], digits: int) -> None:
    assert decimals(values) == digits


def test_each_cost_has_its_own_definition(tidy: Tidy) -> None:
    for factor, method in ((10, "fedavg"), (20, "fedsam")):
        rows = cost(factor)
        rows["definition"] = (
            rows["metric"].str.contains("seconds").map({True: "over 8 rounds, on cpu", False: "over 8 rounds"})
        )
        write(tidy.results, CellAddress(HARD, method), "cost", rows)
    notes_below = figures.caption(layout("cost"), tidy).notes
    assert "Models sent and received per round; gradients per local step: over 8 rounds." in notes_below
    assert "Training and evaluation per round: over 8 rounds, on cpu." in notes_below


def test_smoothed_curves_and_targets(tidy: Tidy) -> None:
    """FedAvg rises by 12.5 every second round, to 50; of three neighbours the ends have two."""
    (axes,) = panels(figures.draw(layout("convergence", window=3, targets=[40]), tidy))
    curves = [line.get_ydata().tolist() for line in axes.lines if len(line.get_xdata()) == 4]
    assert curves[0] == [18.75, 25, 37.5, 43.75]
    assert [40, 40] in [list(line.get_ydata()) for line in axes.lines]
    thinned = figures.draw(layout("convergence", window=3, every=4), tidy)
    assert [list(line.get_xdata()) for line in panels(thinned)[0].lines] == [[4, 8], [4, 8]]
    stated = words(figures.caption(layout("convergence", window=3, every=4), tidy))
    assert "means of 3 neighbouring evaluations, every 4 rounds." in stated


def test_other_columns_of_the_metrics_are_curves_too(tidy: Tidy) -> None:
    (axes,) = panels(figures.draw(layout("convergence", metric="train_loss"), tidy))
    assert axes.get_ylabel() == "Training loss"
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(2 - 0.5)


def test_curves_of_any_column_are_smoothed_and_thinned(tidy: Tidy) -> None:
    """FedAvg's drift is 0.5/r in all rounds; the mean at round r is over r - 2 to r + 1, as far as they exist."""
    chosen = layout("curves", metric="client_drift", window=4, every=2)
    (axes,) = panels(figures.draw(chosen, tidy))
    drift = 0.5 / np.arange(1, 9)
    means = [drift[max(0, r - 3) : r + 1].mean() for r in (2, 4, 6, 8)]
    assert list(axes.lines[0].get_xdata()) == [2, 4, 6, 8]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), means)
    assert "means of 4 neighbouring values, every 2 rounds." in words(figures.caption(chosen, tidy))
