"""Label maps of segmentation: the class of each pixel, as stored and in batches."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

LabelMaps = NDArray[np.uint8]
"""Classes of all pixels `[n, height, width]`."""

UNLABELLED = 255
"""The number of pixels without a class in stored label maps."""

IGNORED = -100
"""The label of such pixels in batches, which counts neither in losses nor in scores; torch's losses ignore it."""


def has_label_maps(y: Tensor) -> bool:
    """Whether y are labels of pixels `[B, height, width]`, and not labels `[B]` or class probabilities `[B, C]`."""
    return y.ndim > 1 and not y.is_floating_point()


def main_classes(maps: LabelMaps, classes: int, background: int | None = None) -> NDArray[np.int64]:
    """The class `[n]` with the most pixels of each label map, apart from the background; 0 if there is none."""
    counts = np.array([np.bincount(labels.ravel(), minlength=classes)[:classes] for labels in maps])
    if background is not None:
        counts[:, background] = 0
    largest: NDArray[np.int64] = counts.argmax(1)
    return largest
