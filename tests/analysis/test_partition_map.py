"""Pictures of splits: every client and class has its cell, and the page stays a page."""

from itertools import pairwise

import numpy as np
import pytest

from analysis.partition_map import class_counts, partition_map
from bench.data.partitions import IID, Dirichlet
from bench.engine.streams import numpy_stream
from tests.bench.test_partitions import samples


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
    assert bar.get_ylabel() == "Training images"
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


def test_one_split_gives_one_picture() -> None:
    labels = np.repeat(np.arange(10), 100)
    split = IID(clients=50).split(samples(labels), numpy_stream(0, "partition"))
    first, second = (partition_map(labels, split, "iid") for _ in range(2))
    for figure in (first, second):
        figure.canvas.draw()
    assert bytes(first.canvas.buffer_rgba()) == bytes(second.canvas.buffer_rgba())  # type: ignore[attr-defined]
