"""Label maps of segmentation: the class of each pixel, as stored and in batches."""

import numpy as np
from numpy.typing import NDArray

LabelMaps = NDArray[np.uint8]
"""Classes of all pixels `[n, height, width]`."""

UNLABELLED = 255
"""The number of pixels without a class in stored label maps."""

IGNORED = -100
"""The label of such pixels in batches, which counts neither in losses nor in scores; torch's losses ignore it."""


def main_classes(maps: LabelMaps, classes: int, background: int | None = None) -> NDArray[np.int64]:
    """The class `[n]` with the most pixels of each label map, apart from the background; 0 if there is none."""
    counts = np.array([np.bincount(labels.ravel(), minlength=classes)[:classes] for labels in maps])
    if background is not None:
        counts[:, background] = 0
    largest: NDArray[np.int64] = counts.argmax(1)
    return largest
