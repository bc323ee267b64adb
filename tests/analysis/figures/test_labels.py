"""Figures of labels: heat maps of class counts per client."""

import shutil

import numpy as np
import pandas as pd

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.layouts.tidy import Tidy
from tests.analysis.conftest import HARD, run_of
from tests.analysis.figures.drawings import EASY, drawn, panels, texts


def test_labels_show_the_counts(realistic: Tidy) -> None:
    figure = drawn("labels", realistic)
    first, second = panels(figure)
    assert [axes.get_title() for axes in (first, second)] == ["Dirichlet 0.6", "Dirichlet 0.1"]
    assert (first.get_xlabel(), first.get_ylabel()) == ("Class", "Client")
    shown = second.collections[0].get_array()
    assert shown.shape == (20, 10)
    assert shown.sum() == 20 * 72
    data = pd.read_csv(realistic.results / f"partitions/quick/{HARD.path}/fedavg/seed-0/partition.csv.gz")
    expected = len(data[(data["client"] == 3) & (data["label"] == 5)])
    assert np.ma.filled(shown, 0)[3, 5] == expected
    (bar,) = [axes for axes in figure.get_axes() if axes.get_label() == "<colorbar>"]
    assert bar.get_ylabel() == "Training images"


def test_labels_do_not_count_twice_and_a_missing_partition_is_an_empty_panel(realistic: Tidy) -> None:
    both = figures.load_figure("quick", "labels").model_copy(update={"methods": ("fedavg", "fedgf")})
    first, second = panels(figures.draw(both, realistic))
    assert first.collections[0].get_array().sum() == second.collections[0].get_array().sum() == 20 * 72
    (realistic.results / f"partitions/quick/{HARD.path}/fedavg/seed-0/partition.csv.gz").unlink()
    shutil.rmtree(run_of(realistic.results, "quick", f"{HARD.path}/fedavg"))
    realistic.paths.runs("quick", f"{HARD.path}/fedavg").unlink()
    figure = figures.draw(both, realistic)
    assert panels(figure)[1].collections[0].get_array().count() == 0
    assert "not run: FedAvg (Dirichlet 0.1, 4 of 20 clients); FedGF (Dirichlet 0.1, 4 of 20 clients)" in " ".join(
        texts(figure)[0].split()
    )


def test_labels_of_a_hundred_clients_lie_along_the_x_axis(realistic: Tidy) -> None:
    for setting in (HARD, EASY):
        path = realistic.results / f"partitions/quick/{setting.path}/fedavg/seed-0/partition.csv.gz"
        table = pd.read_csv(path)
        pd.concat([table.assign(client=table["client"] + 20 * k) for k in range(5)]).to_csv(path, index=False)
    figure = drawn("labels", realistic)
    first, second = panels(figure)
    assert (second.get_xlabel(), second.get_ylabel()) == ("Client", "Class")
    assert second.collections[0].get_array().shape == (10, 100)
    assert not second.texts, "cells are too small for numbers"
    assert first.get_position().y0 > second.get_position().y0
    assert figure.get_figheight() < 9
