"""Figures of planes and lines show the tidy files' values, with each model at its place."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.kinds.interpolation import InterpolationLayout
from fedflat.analysis.figures.kinds.plane import LocalPlaneLayout, PlaneLayout
from fedflat.analysis.figures.palette import styles
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, tidy_in, words, write
from tests.analysis.figures.drawings import foot

TEXT = {"title": "A title", "caption": "Digits.", "select": {"partition": "dirichlet-0.1", "participation": "4-of-20"}}
PLACES = {"fedavg": (0.0, 0.0), "fedsam": (2.0, 0.0), "client 3": (0.5, 1.0)}


def plane(sharp: float) -> pd.DataFrame:
    """Losses sharp · (1 + x² + y²) of a 5×5 grid, then of the three models; errors are ten times the loss."""
    points = [*product(np.linspace(-0.4, 2.4, 5), np.linspace(-0.2, 1.2, 5)), *PLACES.values()]
    names = [None] * 25 + list(PLACES)
    rows = [
        (0, part, x, y, name, sharp * (1 + x**2 + y**2), 10 * sharp * (1 + x**2 + y**2))
        for part in ("train", "test")
        for (x, y), name in zip(points, names, strict=True)
    ]
    return pd.DataFrame(rows, columns=["seed", "data", "x", "y", "model", "loss", "error"])


def test_a_plane_marks_its_models_in_both_panels(tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellAddress(HARD, "fedavg"), "plane", plane(0.3))
    layout = PlaneLayout.parse({"kind": "plane", "methods": ["fedavg"], **TEXT})
    figure = figures.draw(layout, tidy_in(tmp_path, quick))
    loss, error, *bars = figure.get_axes()
    assert [axes.get_title() for axes in (loss, error)] == ["Training loss", "Test error (%)"]
    assert len(bars) == 2
    looks = styles(quick)
    for axes in (loss, error):
        marks = {tuple(line.get_xydata()[0]): to_hex(line.get_color()) for line in axes.lines}
        assert marks == {
            (0, 0): looks["fedavg"].colour.lower(),
            (2, 0): looks["fedsam"].colour.lower(),
            (0.5, 1): "#ffffff",
        }
        assert [text.get_text() for text in axes.texts] == ["FedAvg", "FedSAM", "client 3"]
        assert axes.get_aspect() == 1
    values = 0.3 * (1 + plane(1)[["x", "y"]].pow(2).sum(axis=1))
    assert bars[0].get_ylim() == pytest.approx((values.min(), values.max()))
    assert "Seed 0." in words(figures.caption(layout, tidy_in(tmp_path, quick)))
    assert all(file.stat().st_size for file in figures.save(figure, tmp_path / "plane"))


def test_rows_of_local_planes_share_their_colours(tmp_path: Path, quick: Experiment) -> None:
    for method, sharp in (("fedavg", 1.0), ("fedsam", 0.2)):
        write(tmp_path, CellAddress(HARD, method), "local_plane", plane(sharp))
    methods = ["fedavg", "fedsam", "fedgf"]
    layout = LocalPlaneLayout.parse({"kind": "local_plane", "methods": methods, "ceiling": 3, **TEXT})
    figure = figures.draw(layout, tidy_in(tmp_path, quick))
    panels = [axes for axes in figure.get_axes() if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [
        "Training loss, FedAvg", "Test error (%), FedAvg", "Training loss, FedSAM", "Test error (%), FedSAM",
    ]  # fmt: skip
    ranges = [axes.collections[0].get_clim() for axes in panels]
    assert ranges[0] == ranges[2] == pytest.approx((0.2, 3))
    assert ranges[1] == ranges[3]
    assert "not run: FedGF" in foot(figure)
    assert "Losses above 3 are cut off." in words(figures.caption(layout, tidy_in(tmp_path, quick)))


def test_a_line_is_the_mean_over_seeds(tmp_path: Path, quick: Experiment) -> None:
    t = np.linspace(-0.5, 1.5, 9)
    rows = [(s, part, x, 1 + s - x, 90 - 40 * x) for s in (0, 1) for part in ("train", "test") for x in t]
    frame = pd.DataFrame(rows, columns=["seed", "data", "t", "loss", "error"])
    write(tmp_path, CellAddress(HARD, "fedavg"), "interpolation", frame)
    given = {"kind": "interpolation", "methods": ["fedavg"], "ends": ["initial", "final"], **TEXT}
    layout = InterpolationLayout.parse(given)
    figure = figures.draw(layout, tidy_in(tmp_path, quick))
    loss, error = figure.get_axes()
    np.testing.assert_allclose(loss.lines[0].get_xydata(), np.column_stack([t, 1.5 - t]))
    np.testing.assert_allclose(error.lines[0].get_xydata(), np.column_stack([t, 90 - 40 * t]))
    assert (loss.get_ylabel(), error.get_ylabel()) == ("Training loss", "Test error (%)")
    caption = words(figures.caption(layout, tidy_in(tmp_path, quick)))
    assert "mean over 2 seeds" in caption
    assert "At t = 0 the initial model" in caption


@pytest.mark.parametrize("kind", ["plane", "interpolation"])
def test_images_that_were_not_requested_cannot_be_drawn(tmp_path: Path, quick: Experiment, kind: str) -> None:
    frame = plane(1).rename(columns={"x": "t"}) if kind == "interpolation" else plane(1)
    write(tmp_path, CellAddress(HARD, "fedavg"), kind, frame[frame["data"] == "train"])
    layout = figures.KINDS[kind].parse({"kind": kind, "methods": ["fedavg"], **TEXT})
    with pytest.raises(UserError, match="nothing to draw for 'A title'"):
        figures.draw(layout, tidy_in(tmp_path, quick))
