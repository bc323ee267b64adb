"""Lines that are not one per method: a method in a setting, with a title of its own."""

from typing import Any

import pytest
from matplotlib.figure import Figure

from analysis.figures import draw as figures
from analysis.figures.base import FigureLayout
from analysis.figures.draw import KINDS
from analysis.figures.palette import LINES, styles
from analysis.layouts.tidy import Tidy, of_cell
from analysis.measures.convergence import curves
from bench.experiments.address import CellAddress, Setting
from bench.experiments.experiment import load_experiment
from bench.input.errors import UserError
from tests.analysis.conftest import HARD

EASY = Setting("digits", "dirichlet-0.6", "4-of-20")
EASY_LINE = {"partition": "dirichlet-0.6", "method": "fedavg", "title": "easy"}
HARD_LINE = {"partition": "dirichlet-0.1", "method": "fedavg", "title": "hard"}
OTHER = {"partition": "dirichlet-0.1", "method": "fedsam", "title": "SAM, hard"}


def layout(kind: str, *lines: dict[str, str], **fields: Any) -> FigureLayout:
    panel = {"participation": "4-of-20", "lines": lines}
    place = {"select": panel} if kind == "drift" else {"panels": [panel]}
    given = {"kind": kind, "title": "T", "caption": "C.", "methods": ["fedavg", "fedsam"], **place, **fields}
    return KINDS[kind].parse(given)


def legend(figure: Figure) -> list[str]:
    (found,) = [one for part in [figure, *figure.subfigs] for one in part.legends]
    return [text.get_text() for text in found.get_texts()]


@pytest.mark.parametrize(("kind", "fields"), [("convergence", {}), ("curves", {"metric": "client_drift"})])
def test_one_panel_has_a_line_per_setting(kind: str, fields: dict[str, str], realistic: Tidy) -> None:
    chosen = layout(kind, EASY_LINE, HARD_LINE, OTHER, **fields)
    cells = [CellAddress(EASY, "fedavg"), CellAddress(HARD, "fedavg"), CellAddress(HARD, "fedsam")]
    assert list(chosen.cells(realistic.experiment)) == cells
    figure = figures.draw(chosen, realistic)
    (axes,) = [axes for axes in figure.get_axes() if axes.get_visible()]
    column = fields.get("metric", "test_accuracy")
    mean = curves(realistic.gather("metrics", cells), column)
    for line, cell in zip(axes.lines, cells, strict=True):
        assert list(line.get_ydata()) == list(of_cell(mean, cell)["mean"])
    assert legend(figure) == ["easy", "hard", "SAM, hard"]
    assert [line.get_color() for line in axes.lines] == [look.colour for look in LINES[:3]]
    assert axes.get_title() == ""


def test_lines_of_different_methods_look_as_everywhere(realistic: Tidy) -> None:
    """Of drift, FedAvg has a line in the panel of sharpness only."""
    figure = figures.draw(layout("drift", EASY_LINE, OTHER), realistic)
    left, right = figure.get_axes()
    looks = styles(realistic.experiment, ["fedavg", "fedsam"])
    assert [line.get_color() for line in left.lines] == [looks["fedsam"].colour]
    assert [line.get_color() for line in right.lines] == [look.colour for look in looks.values()]
    assert legend(figure) == ["easy", "SAM, hard"]
    assert "no perturbations: easy" in " ".join(text.get_text() for part in figure.subfigs for text in part.texts)


def test_lines_of_methods_that_were_not_chosen_are_left_out() -> None:
    chosen = load_experiment("quick", {"chosen": ["fedsam"]})
    assert layout("convergence", EASY_LINE, OTHER).cells(chosen) == (CellAddress(HARD, "fedsam"),)


def test_wrong_lines_are_one_line(realistic: Tidy) -> None:
    with pytest.raises(UserError, match="unknown method of the figure 'fedgf'"):
        layout("convergence", {**EASY_LINE, "method": "fedgf"})
    with pytest.raises(UserError, match="either all panels or none must have lines"):
        layout("convergence", panels=[{"participation": "4-of-20"}, {"lines": [EASY_LINE]}])
    with pytest.raises(UserError, match="select must match one setting"):
        layout("convergence", {"method": "fedavg", "title": "t"}).cells(realistic.experiment)
