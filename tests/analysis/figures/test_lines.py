"""Lines that are not one per method: a method in a setting, with a title of its own."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.base import FigureLayout, draw_curve
from fedflat.analysis.figures.draw import KINDS
from fedflat.analysis.figures.palette import line_look, styles
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.measures.convergence import curves
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.files import read_yaml
from fedflat.bench.input.errors import UserError
from fedflat.conformance.template import write_template
from tests.analysis.conftest import HARD, QUICK, metrics, read_rows, tidy_in, write, write_rows
from tests.analysis.figures.drawings import EASY, foot, legend, panels

EASY_LINE = {"partition": "dirichlet-0.6", "method": "fedavg", "title": "easy"}
HARD_LINE = {"partition": "dirichlet-0.1", "method": "fedavg", "title": "hard"}
OTHER = {"partition": "dirichlet-0.1", "method": "fedsam", "title": "SAM, hard"}


def layout(kind: str, *lines: dict[str, str], **fields: Any) -> FigureLayout:
    panel = {"participation": "4-of-20", "lines": lines}
    place = {"select": panel} if kind == "drift" else {"panels": [panel]}
    given = {"kind": kind, "title": "T", "caption": "C.", "methods": ["fedavg", "fedsam"], **place, **fields}
    return KINDS[kind].parse(given)


@pytest.mark.parametrize(("kind", "fields"), [("convergence", {}), ("curves", {"metric": "client_drift"})])
def test_one_panel_has_a_line_per_setting(kind: str, fields: dict[str, str], realistic: Tidy) -> None:
    chosen = layout(kind, EASY_LINE, HARD_LINE, OTHER, **fields)
    cells = [CellAddress(EASY, "fedavg"), CellAddress(HARD, "fedavg"), CellAddress(HARD, "fedsam")]
    assert list(chosen.cells(realistic.experiment)) == cells
    figure = figures.draw(chosen, realistic)
    (axes,) = panels(figure)
    column = fields.get("metric", "test_accuracy")
    mean = curves(realistic.gather("metrics", cells), column)
    for line, cell in zip(axes.lines, cells, strict=True):
        assert list(line.get_ydata()) == list(of_cell(mean, cell)["mean"])
    assert legend(figure) == ["easy", "hard", "SAM, hard"]
    assert [line.get_color() for line in axes.lines] == [line_look(number).colour for number in range(3)]
    assert axes.get_title() == ""


def test_lines_of_different_methods_look_as_everywhere(realistic: Tidy) -> None:
    """Of drift, FedAvg has a line in the panel of sharpness only."""
    figure = figures.draw(layout("drift", EASY_LINE, OTHER), realistic)
    left, right = figure.get_axes()
    looks = styles(realistic.experiment, ["fedavg", "fedsam"])
    assert [line.get_color() for line in left.lines] == [looks["fedsam"].colour]
    assert [line.get_color() for line in right.lines] == [look.colour for look in looks.values()]
    assert legend(figure) == ["easy", "SAM, hard"]
    assert "no perturbations: easy" in foot(figure)


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


def test_a_users_method_is_solid_dark_and_on_top(tmp_path: Path) -> None:
    """In a curve and in the legend; several have different colours. Methods of the catalog look as before."""
    file = write_template(tmp_path / "mine")
    trust(file.read_bytes())
    mine = {label: {"file": str(file), "hyperparameters": {"rho": rho}} for label, rho in (("a", 0.1), ("b", 0.2))}
    quick = load_experiment("quick")
    given = {label: entry.model_dump() for label, entry in quick.methods.items()}
    looks = styles(Experiment.parse({**read_yaml(QUICK), "methods": {**mine, **given}}))
    assert {label: looks[label] for label in given} == styles(quick)
    assert [looks[label].dashes for label in "ab"] == [(0, ())] * 2
    assert len({look.colour for look in looks.values() if look.on_top}) == 2
    brightness = {label: sum(to_rgb(look.colour)) / 3 for label, look in looks.items()}
    assert max(brightness.pop(label) for label in "ab") < 0.2 < min(brightness.values())
    axes = Figure().subplots()
    x = pd.Series([1.0, 2.0])
    for label in ("a", "fedavg"):
        draw_curve(axes, x, x, 0 * x, looks[label])
    users, others = axes.lines
    assert users.get_zorder() > others.get_zorder() > max(band.get_zorder() for band in axes.collections)
    assert users.get_linewidth() > others.get_linewidth()


def test_compositions_are_the_users_own_except_those_of_papers() -> None:
    """In pictures, and where a layout shows few methods."""
    rho = {"hyperparameters": {"rho": 0.1}}
    methods = {"fedavg": {}, "fedsam": rho, "fedgamma": rho, "mine": {"perturbation": "sam", "server": "adam", **rho}}
    data = {**read_yaml(QUICK), "methods": methods}
    experiment = Experiment.parse({**data, "name": "own"})
    assert experiment.own_methods == ("mine",)
    assert [label for label, look in styles(experiment).items() if look.on_top] == ["mine"]
    few = {"kind": "labels", "title": "T", "caption": "C.", "methods": ["fedavg", "fedsam", "fedgamma"], "most": 2}
    assert KINDS["labels"].parse(few).fitted(experiment).methods == ("fedavg", "mine")
    for paper in ({}, {"scale": "smoke"}):
        assert not load_experiment("fedsam_caldarola", paper).own_methods


def test_lines_that_coincide_are_named_below_the_figure(realistic: Tidy) -> None:
    """In the panel where they do; a difference that can be seen is none of them."""
    panels = [{"partition": partition, "participation": "4-of-20"} for partition in ("dirichlet-0.1", "dirichlet-0.6")]
    methods = ["fedavg", "fedsam", "fedgamma"]
    chosen = KINDS["convergence"].parse(
        {"kind": "convergence", "title": "T", "caption": "C.", "methods": methods, "panels": panels}
    )

    assert "coincide" not in foot(figures.draw(chosen, realistic))
    averaged, sam = (realistic.path("metrics", CellAddress(HARD, method)) for method in ("fedavg", "fedsam"))
    frame = read_rows(sam).assign(test_accuracy=read_rows(averaged)["test_accuracy"] + 0.01)
    write_rows(sam, frame)
    named = "lines that coincide, within their width: FedAvg and FedSAM (Dirichlet 0.1, 4 of 20 clients)"
    assert named in foot(figures.draw(chosen, realistic))
    write_rows(sam, frame.assign(test_accuracy=frame["test_accuracy"] + 2))
    assert "coincide" not in foot(figures.draw(chosen, realistic))


@pytest.mark.parametrize(
    ("fields", "coincide"),
    [
        ({"kind": "convergence"}, True),
        ({"kind": "convergence", "y_min": 85}, False),
        ({"kind": "curves", "metric": "client_drift"}, True),
        ({"kind": "curves", "metric": "client_drift", "scale": "log"}, False),
    ],
)
def test_lines_coincide_if_their_axes_show_it(
    fields: dict[str, Any], coincide: bool, tmp_path: Path, quick: Experiment
) -> None:
    """What is within a line's width of the whole range is far apart where the axis is cut, or logarithmic."""
    drifts = {"fedavg": [1e-4, 1e-2, 0.1, 1.0], "fedsam": [5e-3, 1.4e-2, 0.1, 1.0]}
    for (method, drift), final in zip(drifts.items(), (90, 90.4), strict=True):
        rows = metrics([final], rounds=12).assign(client_drift=[*drift, *[1.0] * 8])
        rows["test_accuracy"] = rows["test_accuracy"].mask(rows["round"] > 2, final)
        write(tmp_path, CellAddress(HARD, method), "metrics", rows)
    panels = [{"partition": "dirichlet-0.1", "participation": "4-of-20"}]
    given = {"title": "T", "caption": "C.", "methods": ["fedavg", "fedsam"], "panels": panels, **fields}
    figure = figures.draw(KINDS[given["kind"]].parse(given), tidy_in(tmp_path, quick))
    assert ("coincide" in foot(figure)) == coincide
    assert len(figure.get_axes()) == (1 if fields["kind"] == "curves" else 2), "one of them invisible"
