"""Figures of drift, perturbation and sharpness: values, axes, and cells that lack some."""

from pathlib import Path

import pytest

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.figures import draw as figures
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, read_rows, tidy_in, words, write, write_rows
from tests.analysis.figures.drawings import EASY, drawn, drift, lines, panels, single, texts


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


def test_perturbation_is_the_mean_over_draws_and_seeds(realistic: Tidy) -> None:
    first, second = panels(drawn("perturbation", realistic))
    assert first.get_xlabel() == second.get_xlabel() == "Perturbation radius ‖δ‖₂"
    assert first.get_ylabel() == "Loss F(w + δ)"
    data = read_rows(realistic.path("perturbation", CellAddress(HARD, "fedavg")))
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
            rows = read_rows(path)
            write_rows(path, rows[rows["radius"] > 0])
    hard = layout.model_copy(update={"panels": layout.panels[1:]})
    with pytest.raises(UserError, match="show: rise needs losses at radius 0"):
        figures.draw(hard, realistic)


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
            path = realistic.path("perturbation", CellAddress(setting, method))
            table = read_rows(path)
            write_rows(path, table[table["direction"] == "random"])
    with pytest.raises(UserError, match=r"without directions: \[gradient\]; add it") as error:
        single(realistic, "perturbation", direction="gradient")
    assert "\n" not in str(error.value)


def test_sharpness_is_the_mean_over_seeds_at_its_radii(realistic: Tidy) -> None:
    (axes,) = panels(single(realistic, "sharpness", scale="log"))
    data = read_rows(realistic.path("sharpness", CellAddress(HARD, "fedavg")))
    x, y = lines(axes)[0]
    assert list(x) == [0.1, 0.5, 1]
    assert list(y) == pytest.approx(list(data.groupby("radius")["sharpness"].mean()))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.5", "1"]


def test_drift_shows_the_quantities_that_are_requested(realistic: Tidy) -> None:
    where = {"partition": "dirichlet-0.1", "participation": "4-of-20"}
    figure = single(realistic, "drift", select=where, show=["cosine", "local_norm", "sharpness"])
    shown = panels(figure)
    assert [axes.get_ylabel() for axes in shown] == [
        "Cosine of perturbations", "Norm of local perturbations", "Global sharpness",
    ]  # fmt: skip
    assert [len(lines(axes)) for axes in shown] == [2, 2, 3]


def test_cells_that_have_lost_seeds_are_named(realistic: Tidy) -> None:
    """A mean over the seeds that are left is reported as one; the same in the picture and in its caption."""
    cell = CellAddress(HARD, "fedsam")
    path = realistic.path("metrics", cell)
    frame = read_rows(path)
    write_rows(path, frame.assign(diverged=(frame["seed"] > 0).astype(int)))
    path = realistic.path("drift", cell)
    frame = read_rows(path)
    write_rows(path, frame[frame["seed"] == 0])
    layout = figures.load_figure("quick", "drift").model_copy(update={"methods": ("fedavg", "fedsam")})
    caption = words(figures.caption(layout, realistic))
    assert "mean over 1 to 3 seeds" in caption
    assert "1 of 3 seeds: FedSAM." in caption
    assert "1 of 3 seeds: FedSAM" in " ".join(texts(figures.draw(layout, realistic)))
    write_rows(path, frame[frame["seed"] > 2])
    assert "No value: FedSAM." in words(figures.caption(layout, realistic)), "one of its runs has not diverged"
