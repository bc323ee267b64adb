"""Draw one split: how many images of each class every client holds."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedflat.analysis.figures.base import TEXT_WIDTH, figure_style, new_figure
from fedflat.analysis.figures.draw import save
from fedflat.analysis.figures.heatmap import body_height, body_width, draw_counts
from fedflat.analysis.layouts.titles import partition_title
from fedflat.bench.data.dataset import Labels
from fedflat.bench.data.partitions.base import Indices, partition_hash
from fedflat.bench.data.sources import parse_source
from fedflat.bench.experiments.data_sets import check_partition
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import PARTITION, ResultPaths
from fedflat.bench.files.csv_json import write_csv
from fedflat.bench.input.errors import unknown
from fedflat.bench.training.run_directory import partition_table
from fedflat.bench.training.run_setup import load_dataset, split_of


def class_counts(labels: Labels, split: Sequence[Indices]) -> pd.DataFrame:
    """Images by client (rows) and class (columns); an image that a client holds twice counts twice."""
    classes = int(labels.max()) + 1
    counts = [np.bincount(labels[indices], minlength=classes) for indices in split]
    return pd.DataFrame(np.stack(counts)).rename_axis(index="client", columns="label")


def partition_map(labels: Labels, split: Sequence[Indices], title: str) -> Figure:
    """A heat map of `split`, the indices of each client's images, over the training set's `labels`."""
    counts = class_counts(labels, split)
    with figure_style():
        figure, body = new_figure(body_width(counts, 1, TEXT_WIDTH), body_height(counts, 1))
        draw_counts(body, [counts], [title])
    return figure


def draw_partitions(
    experiment: Experiment, label: str | None, seed: int, root: Path, paths: ResultPaths
) -> Iterator[tuple[str, list[Path]]]:
    """Write the splits of an experiment's partitions, or of those with one label, as runs with this seed have them.

    Yields for each a summary and its files: pictures, and a table in the format of runs (`partition_table`), in
    `paths.drawn_partition(...)`. Nothing is trained. A `UserError` lists the labels of the experiment's partitions.
    """
    splits = [
        (label_of_part, part, partition)
        for label_of_part, part in experiment.resolved_parts.items()
        for partition in part.grid.partition
    ]
    labels = dict.fromkeys(partition.label for *_, partition in splits)
    if label is not None and label not in labels:
        raise unknown(f"partition of experiment {experiment.name}", label, labels)
    for name, part, partition in splits:
        if label in (None, partition.label):
            source = parse_source(part.dataset)
            check_partition(partition, source, root)
            data = load_dataset(source, root)
            split = split_of(partition, data, seed)
            clients = f"{partition.clients} clients" if partition.clients > 1 else "1 client"
            folder = paths.drawn_partition(experiment.name, name, partition.label, partition.clients, seed)
            write_csv(folder / PARTITION, partition_table(split, data.train.labels))
            title = f"{name}, {partition_title(partition.label)}, {clients}, seed {seed}"
            figure = partition_map(data.train.labels, split, title)
            summary = _summary(partition.label, data.train.labels, split)
            yield summary, [folder / PARTITION, *save(figure, folder / "partition")]


def _summary(name: str, labels: Labels, split: Sequence[Indices]) -> str:
    sizes = [len(indices) for indices in split]
    held = (class_counts(labels, split) > 0).sum(axis=1)
    return (
        f"{name}: {len(split)} clients of {_range(sizes)} images, {_range(held)} classes "
        f"({held.mean():.2f} on average), hash {partition_hash(list(split))}"
    )


def _range(counts: Sequence[int] | pd.Series) -> str:
    """The smallest and the largest count, or the only one."""
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"
