"""Figures: each kind draws what the tidy files say, labels its axes, and gives the same bytes again."""

from pathlib import Path
from typing import Any

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import figures
from analysis.figures import KINDS, FigureLayout
from analysis.layout import layout_names
from analysis.palette import style, styles
from analysis.tidy import CellKey, Tidy
from bench.config import Experiment
from bench.errors import UserError
from bench.methods.catalog import CATALOG
from tests.analysis.conftest import HARD, metrics, write


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


def test_convergence_has_a_panel_per_setting(realistic: Tidy) -> None:
    figure = drawn("convergence", realistic)
    assert [axes.get_title() for axes in panels(figure)] == [
        "Dirichlet 0.6, 10 of 20 clients",
        "Dirichlet 0.1, 10 of 20 clients",
        "Dirichlet 0.6, 4 of 20 clients",
        "Dirichlet 0.1, 4 of 20 clients",
    ]
    assert {axes.get_xlabel() for axes in panels(figure)[2:]} == {"Communication round"}
    assert panels(figure)[0].get_ylabel() == "Test accuracy (%)"
    assert [len(lines(axes)) for axes in panels(figure)] == [12, 11, 12, 11]
    assert len(legend(figure)) == 12
    note = " ".join(texts(figure)[0].split())
    assert "not run: FedGF (Dirichlet 0.1, 10 of 20 clients and Dirichlet 0.1, 4 of 20 clients)" in note
    assert "FedDyn (1 of 12 runs)" in note


def test_convergence_draws_mean_and_band(tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellKey(HARD, "fedavg"), "metrics", metrics([80, 90]))
    axes = panels(drawn("convergence", Tidy(tmp_path, quick)))[3]
    ((x, y),) = lines(axes)
    assert (list(x), list(y)) == ([2, 4], [42.5, 85.0])
    # The band at round 4: 85 ± 10 / √2.
    extent = axes.collections[0].get_datalim(axes.transData)
    assert extent.y1 == pytest.approx(85 + 10 / 2**0.5)


def test_a_diverged_curve_ends_at_a_cross(realistic: Tidy) -> None:
    axes = panels(drawn("convergence", realistic))[3]
    crosses = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "x"]
    assert crosses == [34]  # diverged in round 35, evaluated every second round


def test_drift_has_no_line_for_methods_that_do_not_perturb(realistic: Tidy) -> None:
    left, right = panels(drawn("drift", realistic))
    assert (left.get_ylabel(), right.get_ylabel()) == ("Perturbation drift", "Global sharpness")
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


def test_surfaces_of_a_seed_without_data_or_infinite_losses(realistic: Tidy) -> None:
    layout = figures.load_figure("quick", "surfaces")
    with pytest.raises(UserError, match="no finite loss of seed 7"):
        figures.draw(layout.model_copy(update={"seed": 7}), realistic)
    cell = CellKey(HARD, "fedavg")
    plane = pd.read_csv(realistic.results / f"analysis/quick/{cell.path}/surface.csv")
    plane.loc[:5, "loss"] = np.inf
    write(realistic.results, cell, "surface", plane[["seed", "a", "b", "loss"]])
    figures.draw(layout, realistic)


def test_perturbation_is_the_mean_over_draws_and_seeds(realistic: Tidy) -> None:
    first, second = panels(drawn("perturbation", realistic))
    assert first.get_xlabel() == second.get_xlabel() == "Perturbation radius ‖δ‖₂"
    assert first.get_ylabel() == "Loss"
    data = pd.read_csv(realistic.results / f"analysis/quick/{HARD.path}/fedavg/perturbation.csv")
    assert list(lines(second)[0][1]) == pytest.approx(list(data.groupby("radius")["loss"].mean()))
    assert (len(lines(first)), len(lines(second))) == (6, 5)
    caption = figures.caption(figures.load_figure("quick", "perturbation"), realistic)
    assert "mean over 5 random directions for each of 3 seeds" in caption


def test_labels_show_the_counts(realistic: Tidy) -> None:
    figure = drawn("labels", realistic)
    first, second = panels(figure)
    assert [axes.get_title() for axes in (first, second)] == ["Dirichlet 0.6", "Dirichlet 0.1"]
    assert (first.get_xlabel(), first.get_ylabel()) == ("Class", "Client")
    shown = second.collections[0].get_array()
    assert shown.shape == (20, 10)
    assert shown.sum() == 20 * 72
    data = pd.read_csv(realistic.results / f"runs/quick/{HARD.path}/fedavg/seed-0/partition.csv")
    expected = len(data[(data["client"] == 3) & (data["label"] == 5)])
    assert np.ma.filled(shown, 0)[3, 5] == expected
    (bar,) = [axes for axes in figure.get_axes() if axes.get_label() == "<colorbar>"]
    assert bar.get_ylabel() == "Training images"


def test_labels_do_not_count_twice_and_a_missing_partition_is_an_empty_panel(realistic: Tidy) -> None:
    both = figures.load_figure("quick", "labels").model_copy(update={"methods": ("fedavg", "fedgf")})
    first, second = panels(figures.draw(both, realistic))
    assert first.collections[0].get_array().sum() == second.collections[0].get_array().sum() == 20 * 72
    (realistic.results / f"runs/quick/{HARD.path}/fedavg/seed-0/partition.csv").unlink()
    figure = figures.draw(both, realistic)
    assert panels(figure)[1].collections[0].get_array().count() == 0
    assert "not run: FedAvg (Dirichlet 0.1, 4 of 20 clients); FedGF (Dirichlet 0.1, 4 of 20 clients)" in " ".join(
        texts(figure)[0].split()
    )


@pytest.mark.parametrize("name", layout_names("quick", "figures"))
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


@pytest.mark.parametrize("name", layout_names("quick", "figures"))
def test_no_data_at_all_is_one_line(name: str, quick: Experiment, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to draw for") as error:
        drawn(name, Tidy(tmp_path, quick))
    assert "\n" not in str(error.value)


def test_quick_has_every_kind() -> None:
    assert {figures.load_figure("quick", name).kind for name in layout_names("quick", "figures")} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_typo_in_a_layout_is_one_line(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "experiments.yaml"
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "f.yaml").write_text(f"kind: {kind}\ntitel: x\n")
    with pytest.raises(UserError, match=r"f\.yaml: unknown key of \w+ 'titel'; did you mean 'title'") as error:
        figures.load_figure(str(file), "f")
    assert "\n" not in str(error.value)
    (tmp_path / "figures" / "f.yaml").write_text(f"kind: {kind}x\n")
    with pytest.raises(UserError, match=f"unknown kind of figure in .*; did you mean '{kind}'"):
        figures.load_figure(str(file), "f")


def test_every_method_of_the_catalog_looks_different() -> None:
    looks = [style(name) for name in CATALOG]
    assert len(set(looks)) == len(looks)
    for look in looks:
        assert matplotlib.colors.is_color_like(look.colour)


def test_hue_tells_the_perturbation_and_line_the_correction() -> None:
    assert style("fedsam").dashes == style("fedlesam").dashes == style("fedavg").dashes
    assert style("fedgamma").dashes == style("fedlesam_s").dashes == style("scaffold").dashes
    hues = [
        matplotlib.colors.rgb_to_hsv(matplotlib.colors.to_rgb(style(n).colour))[0]
        for n in ("fedlesam", "fedlesam_s", "fedlesam_d")
    ]
    assert hues == pytest.approx([hues[0]] * 3, abs=0.01)


def test_variants_of_one_method_differ_in_markers_only(quick: Experiment) -> None:
    variant = quick.methods["fedsam"].model_copy(update={"name": "fedsam"})
    looks = styles(quick.model_copy(update={"methods": {**quick.methods, "fedsam_small": variant}}))
    one, other = looks["fedsam"], looks["fedsam_small"]
    assert (one.colour, one.dashes) == (other.colour, other.dashes)
    assert one.marker != other.marker


def test_layouts_are_figure_layouts() -> None:
    assert all(issubclass(kind.layout, FigureLayout) for kind in KINDS.values())
