"""Figures of Hessian eigenvalues draw what the tidy files say."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.base import FigureLayout
from fedflat.analysis.figures.draw import KINDS
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, tidy_in, words, write
from tests.analysis.figures.drawings import EASY, check_bytes_repeat, check_type, panels
from tests.tiers import thorough

PANELS = [{"partition": place.partition, "participation": place.participation} for place in (EASY, HARD)]
METHODS = ("fedavg", "fedsam")


def layout(kind: str, **fields: Any) -> FigureLayout:
    given = {"kind": kind, "title": "T", "caption": "C.", "methods": [*METHODS, "fedgf"], "panels": PANELS, **fields}
    return KINDS[kind].parse(given)


@pytest.fixture
def tidy(tmp_path: Path, quick: Experiment) -> Tidy:
    """Two methods in two settings, two seeds; FedSAM is half as sharp as FedAvg."""
    for place in (EASY, HARD):
        for scale, method in zip((2.0, 1.0), METHODS, strict=True):
            cell = CellAddress(place, method)
            top = [(s, "eigenvalue", i, scale * (10 + s) / i, 0.0) for s in (0, 1) for i in range(1, 21)]
            top += [(s, "lambda_max", None, scale * (10 + s), 0.0) for s in (0, 1)]
            write(
                tmp_path, cell, "hessian", pd.DataFrame(top, columns=["seed", "metric", "index", "value", "residual"])
            )
            grid = np.linspace(-1, 10 * scale, 200)
            bulk = np.exp(-(grid**2)) + 1e-9
            density = [(s, "density", x, y * (1 + s), 0.0) for s in (0, 1) for x, y in zip(grid, bulk, strict=True)]
            density += [(s, "density_single", None, 1e-3, None) for s in (0, 1)]
            columns = ["seed", "metric", "eigenvalue", "value", "stderr"]
            write(tmp_path, cell, "spectrum", pd.DataFrame(density, columns=columns))
            clients = [(s, r, c, scale * (c + 1) / r, 0.0) for s in (0, 1) for r in (1, 5, 9) for c in range(5)]
            columns = ["seed", "round", "client", "lambda_max", "residual"]
            write(tmp_path, cell, "client_hessian", pd.DataFrame(clients, columns=columns))
    return tidy_in(tmp_path, quick)


def test_eigenvalues_are_means_over_seeds_by_index(tidy: Tidy) -> None:
    figure = figures.draw(layout("eigenvalues"), tidy)
    easy, hard = panels(figure)
    assert easy.get_title() == "Dirichlet 0.6, 4 of 20 clients"
    assert easy.get_ylabel() == "Hessian eigenvalue $λ_i$"
    assert [list(line.get_xdata()) for line in hard.lines] == [list(range(1, 21))] * 2
    np.testing.assert_allclose(hard.lines[0].get_ydata(), 2 * 10.5 / np.arange(1, 21))
    np.testing.assert_allclose(hard.lines[1].get_ydata(), 10.5 / np.arange(1, 21))
    assert "mean over 2 seeds" in words(figures.caption(layout("eigenvalues"), tidy))
    assert "ot run: FedGF" in words(figures.caption(layout("eigenvalues"), tidy))
    assert panels(figures.draw(layout("eigenvalues", scale="log"), tidy))[0].get_yscale() == "log"


def test_density_is_that_of_one_seed_down_to_a_single_eigenvalue(tidy: Tidy) -> None:
    figure = figures.draw(layout("density"), tidy)
    assert [axes.get_title() for axes in panels(figure)[:2]] == ["FedAvg", "FedSAM"]
    assert len(panels(figure)) == 4, "no column for a method without data"
    for axes in panels(figure):
        assert axes.get_yscale() == "log"
        assert axes.get_ylim()[0] == pytest.approx(0.5e-3)
        (line,) = axes.lines
        assert line.get_ydata().max() == pytest.approx(1, abs=0.01)
    other = figures.draw(layout("density", seed=1), tidy)
    assert panels(other)[0].lines[0].get_ydata().max() == pytest.approx(2, abs=0.02)
    assert "Seed 0." in words(figures.caption(layout("density"), tidy))
    assert "Seed 1." in words(figures.caption(layout("density", seed=1), tidy))
    with pytest.raises(UserError, match=r"no spectrum\.csv of seed 2"):
        figures.draw(layout("density", seed=2), tidy)


def test_clients_are_lines_with_their_median(tidy: Tidy) -> None:
    figure = figures.draw(layout("client_eigenvalues"), tidy)
    first = panels(figure)[0]
    assert len(first.lines) == 2 * 5 + 1
    median = first.lines[-1]
    assert list(median.get_xdata()) == [1, 5, 9]
    np.testing.assert_allclose(median.get_ydata(), [2 * 3 / r for r in (1, 5, 9)])
    assert first.get_ylim() == panels(figure)[3].get_ylim()
    caption = words(figures.caption(layout("client_eigenvalues"), tidy))
    assert "5 clients for each of 2 seeds" in caption


@pytest.mark.parametrize("form", ["curves", "map"])
def test_captions_say_how_many_local_models_are_left_out(form: str, tidy: Tidy) -> None:
    chosen = layout("client_eigenvalues", form=form)
    frame = tidy.gather("client_hessian", tidy.experiment.addresses)
    assert "Left out" not in chosen.statistics(frame)
    frame.loc[frame.index[1], "lambda_max"] = np.nan
    said = chosen.statistics(frame)
    assert said.endswith(". Left out: 1 local models whose gradient is not finite."), said


def test_maps_of_clients_and_rounds_share_their_colours(tidy: Tidy) -> None:
    """Seed 0: client c of FedAvg has 2 (c + 1) / r after rounds 1, 5 and 9, FedSAM half of it."""
    chosen = layout("client_eigenvalues", form="map", rounds=[1, 9])
    figure = figures.draw(chosen, tidy)
    *maps, bar = figure.get_axes()
    assert [axes.get_title() for axes in maps] == ["FedAvg", "FedSAM", "", ""]
    assert [axes.get_ylabel() for axes in maps] == ["Dirichlet 0.6\nClient", "", "Dirichlet 0.1\nClient", ""]
    for axes, scale in zip(maps, (2, 1, 2, 1), strict=True):
        (mesh,) = axes.collections
        values = np.asarray(mesh.get_array()).reshape(5, 2)
        np.testing.assert_allclose(values, scale * np.arange(1, 6)[:, None] / [1, 9])
        assert mesh.get_clim() == pytest.approx((1 / 9, 10))
        assert axes.get_ylim() == (4.5, -0.5), "client 0 is at the top"
    assert [label.get_text() for label in maps[2].get_xticklabels()] == ["1", "9"]
    assert (bar.get_ylabel(), bar.get_yscale()) == ("Clients’ $λ_{\\max}$", "log")
    assert "Seed 0; 5 clients; rounds: 1, 9; one colour scale" in words(figures.caption(chosen, tidy))


def test_runs_that_stored_none_of_the_rounds_show_all_of_theirs(tidy: Tidy) -> None:
    chosen = layout("client_eigenvalues", form="map", rounds=[1000, 2000])
    assert [label.get_text() for label in panels(figures.draw(chosen, tidy))[2].get_xticklabels()] == ["1", "5", "9"]
    assert "rounds: 1, 5, 9;" in words(figures.caption(chosen, tidy))


EACH = [("eigenvalues", {}), ("density", {}), ("client_eigenvalues", {}), ("client_eigenvalues", {"form": "map"})]


@thorough
@pytest.mark.parametrize(("kind", "fields"), EACH)
def test_bytes_repeat(kind: str, fields: dict[str, Any], tidy: Tidy, tmp_path: Path) -> None:
    check_bytes_repeat(lambda: figures.draw(layout(kind, **fields), tidy), tmp_path)


@pytest.mark.parametrize(("kind", "fields"), EACH)
def test_type_is_readable_and_nothing_is_one_line(kind: str, fields: dict[str, Any], tidy: Tidy) -> None:
    check_type(figures.draw(layout(kind, **fields), tidy), figures.caption(layout(kind, **fields), tidy))
    with pytest.raises(UserError, match="nothing to draw for 'T'"):
        figures.draw(layout(kind, **fields, methods=["fedgf"]), tidy)
