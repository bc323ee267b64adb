"""Figures of all kinds: layouts, captions, readable type, legends, axes, and the same bytes again."""

import re
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.base import LEGEND, STYLE, TEXT_WIDTH, legend_columns, new_figure, plain_numbers
from fedflat.analysis.figures.draw import KINDS
from fedflat.analysis.layouts.layout import layout_names
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.files import PAPER_TABLES, read_yaml
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import tidy_in
from tests.analysis.figures.drawings import check_bytes_repeat, check_type, drawn
from tests.tiers import case

NAMES = [name for name in layout_names("quick", "figures") if not name.startswith(("sweep", "predictions"))]
"""The figures of quick, which has no sweeps, and whose pixels have no labels."""


def test_long_titles_do_not_cover_their_neighbours() -> None:
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


@pytest.mark.parametrize("name", NAMES)
def test_type_is_readable(name: str, realistic: Tidy) -> None:
    check_type(drawn(name, realistic), figures.caption(figures.load_figure("quick", name), realistic))


@pytest.mark.parametrize("name", [case(name, quick=name == NAMES[0]) for name in NAMES])
def test_bytes_are_the_same_again(name: str, realistic: Tidy, tmp_path: Path) -> None:
    check_bytes_repeat(lambda: drawn(name, realistic), tmp_path)


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
    """What it does not show would be drawn by nobody, except what needs labels of pixels."""
    folder, requested = PAPER_TABLES / "analyses", RequestedExperiment("analyses", Path("results"))
    assert {read_yaml(file)["kind"] for file in folder.glob("figures/*.yaml")} == {*KINDS} - {"predictions"}
    needed = {path.stem for name in Tables(requested).names() for path in Tables(requested).inputs(name)}
    needed |= {path.stem for name in Figures(requested).names() for path in Figures(requested).inputs(name)}
    assert needed >= {name for name, one in requested.analyses.items() if one.of_label_maps is not True}


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


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1.04, 1.16, ["1.05", "1.1", "1.15"]),
        (0.9, 2.2, ["1", "1.5", "2"]),
        (14, 47, ["20", "30"]),
        (0.031, 0.305, ["0.05", "0.1", "0.2", "0.3"]),
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
