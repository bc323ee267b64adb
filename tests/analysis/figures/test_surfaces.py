"""Figures of loss surfaces: common ranges, colours, missing data, and precision."""

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.measures.forward_passes import DIFFERENCES
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, read_rows, words, write, write_rows
from tests.analysis.figures.drawings import drawn, panels


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
        plane = read_rows(realistic.path("surface", cell)).query("seed == 0")
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
    plane = read_rows(realistic.path("surface", cell))
    plane.loc[:5, "loss"] = np.inf
    write(realistic.results, cell, "surface", plane[["seed", "a", "b", "loss", "error"]])
    figure = figures.draw(layout, realistic)
    figure.draw_without_rendering()
    deep = panels(figure)[::2]
    assert [axes.get_title() for axes in deep] == ["FedAvg", "FedSAM", "FedGAMMA", "FedLESAM-D"]
    finite = pd.concat(
        read_rows(realistic.path("surface", CellAddress(HARD, method))).query("seed == 0")["loss"]
        for method in ("fedavg", "fedsam", "fedgamma", "fedlesam_d")
    ).replace(np.inf, np.nan)
    assert [axes.get_zlim()[1] for axes in deep] == pytest.approx([finite.max()] * 4), "infinite losses are cut off"


def test_the_caption_of_a_surface_in_bf16_says_how_exact_it_is(realistic: Tidy) -> None:
    layout, cell = figures.load_figure("quick", "surfaces"), CellAddress(HARD, "fedavg")
    path = realistic.path("surface", cell)
    write_rows(path, read_rows(path).assign(**dict(zip(DIFFERENCES, (5, 0.03, 0.012, 0.5), strict=True))))
    assert (
        "surface was computed in bf16: at 5 points of each run it differs from fp32 by at most 0.03 in the loss "
        "(relatively 1.2 %) and 0.5 percentage points in the error."
    ) in words(figures.caption(layout, realistic))
