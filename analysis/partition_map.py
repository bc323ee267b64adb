"""A picture of one split: how many images of each class every client holds."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.base import STYLE, TEXT_WIDTH, new_figure
from analysis.figures.heatmap import body_height, draw_counts
from bench.data.dataset import Labels
from bench.data.partitions import Indices


def class_counts(labels: Labels, split: Sequence[Indices]) -> pd.DataFrame:
    """Images by client (rows) and class (columns); an image that a client holds twice counts twice."""
    classes = int(labels.max()) + 1
    counts = [np.bincount(labels[indices], minlength=classes) for indices in split]
    return pd.DataFrame(np.stack(counts)).rename_axis(index="client", columns="label")


def partition_map(labels: Labels, split: Sequence[Indices], title: str) -> Figure:
    """A heat map of `split`, the indices of each client's images, over the training set's `labels`."""
    counts = class_counts(labels, split)
    with matplotlib.rc_context(STYLE):
        figure, body = new_figure(TEXT_WIDTH, body_height(counts, 1))
        draw_counts(body, [counts], [title])
    return figure
