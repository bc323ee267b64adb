"""Pictures of splits: every client and class has its cell, and the page stays a page."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.figures.partition_map import class_counts, draw_partitions, partition_map
from fedflat.analysis.layouts.titles import partition_title
from fedflat.bench.data.partitions.dirichlet import Dirichlet
from fedflat.bench.data.partitions.even import IID
from fedflat.bench.data.root import data_root
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream
from tests.bench.data.labelled import samples


def split_of(clients: int, classes: int) -> tuple[np.ndarray, list[np.ndarray]]:
    labels = np.repeat(np.arange(classes), 5000 // classes)
    return labels, Dirichlet(clients=clients, alpha=0.6).split(samples(labels), numpy_stream(0, "partition"))


def test_images_that_a_client_holds_twice_count_twice() -> None:
    counts = class_counts(np.array([0, 1, 1, 4]), [np.array([0, 0, 1]), np.array([2, 3])])
    assert counts.to_numpy().tolist() == [[2, 1, 0, 0, 0], [0, 1, 0, 0, 1]]


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("clients", [1, 5, 20, 40, 41, 100, 200, 500])
def test_every_size_stays_readable(clients: int, classes: int) -> None:
    labels, split = split_of(clients, classes)
    figure = partition_map(labels, split, "a split")
    axes, bar = figure.get_axes()
    assert axes.get_title() == "a split"
    shown = axes.collections[0].get_array()
    assert shown.shape == ((clients, classes) if clients <= 40 else (classes, clients))
    assert shown.sum() == 5000
    assert axes.get_xlabel() == ("Class" if clients <= 40 else "Client")
    scale = "" if max(clients, classes) <= 40 else "\n(square-root scale)"
    assert bar.get_ylabel() == f"Training images{scale}"
    assert bool(axes.texts) == (max(clients, classes) <= 40)
    assert 0.6 < figure.get_figheight() < 8
    figure.canvas.draw()
    for axis in (axes.xaxis, axes.yaxis):
        boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
        assert 1 <= len(boxes) <= 20
        assert not any(one.overlaps(other) for one, other in pairwise(boxes))


def test_few_images_are_not_drawn_as_none() -> None:
    labels, split = split_of(100, 10)
    shown = partition_map(labels, split, "").get_axes()[0].collections[0]
    assert shown.get_array().min() >= 1, "none is masked"
    assert np.linalg.norm(shown.to_rgba(1)[:3] - np.ones(3)) > 0.2, "and one image is no white"


def test_partitions_of_one_label_are_all_drawn(tmp_path: Path) -> None:
    grid = [{"name": "dirichlet", "alpha": 0.1, "clients": n} for n in (20, 50)] + [{"name": "iid", "clients": 20}]
    experiment = load_experiment("quick", {"grid.partition": grid})

    def folders(label: str | None) -> list[str]:
        drawn = [files for _, files in draw_partitions(experiment, label, 3, data_root(), ResultPaths(tmp_path))]
        assert all(file.is_file() for files in drawn for file in files)
        return [str(files[0].parent.relative_to(tmp_path / "partitions")) for files in drawn]

    twenty, fifty, iid = (
        f"quick/digits/{place}-clients/seed-3" for place in ("dirichlet-0.1/20", "dirichlet-0.1/50", "iid/20")
    )
    assert folders(None) == [twenty, fifty, iid]
    assert folders("dirichlet-0.1") == [twenty, fifty]
    for folder, clients in ((twenty, 20), (fifty, 50)):
        assert pd.read_csv(tmp_path / "partitions" / folder / "partition.csv.gz")["client"].nunique() == clients
    with pytest.raises(UserError, match=r"'dirichlet-1'.*\(allowed: dirichlet-0\.1, iid\)"):
        folders("dirichlet-1")


def test_a_partition_file_is_titled_by_its_own_name() -> None:
    titles = {"dirichlet-0.1": "Dirichlet 0.1", "file-dirichlet-0.1": "dirichlet-0.1", "file": "file"}
    assert {label: partition_title(label) for label in titles} == titles


def test_one_split_gives_one_picture() -> None:
    labels = np.repeat(np.arange(10), 100)
    split = IID(clients=50).split(samples(labels), numpy_stream(0, "partition"))
    first, second = (partition_map(labels, split, "iid") for _ in range(2))
    for figure in (first, second):
        figure.canvas.draw()
    assert bytes(first.canvas.buffer_rgba()) == bytes(second.canvas.buffer_rgba())  # type: ignore[attr-defined]
