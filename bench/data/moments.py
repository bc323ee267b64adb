"""The normalisation of pixels 0..255 by their mean and deviation per channel."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SCALE = 255.0
"""The unit of means and deviations of uint8 inputs."""
_CHUNK = 2000


class PixelSums:
    """Sums over pixels per channel. Sums of bytes are integers, so that they do not depend on the size of chunks."""

    def __init__(self) -> None:
        self._count = 0
        self._total = self._squares = np.zeros(1, np.int64)

    def add(self, pixels: NDArray[np.uint8]) -> None:
        """Add pixels `[n, channels, height, width]` or `[n, height, width]`, or features `[n, features]`."""
        one_channel = pixels.ndim == 3
        others = None if one_channel else (0, *range(2, pixels.ndim))
        self._count += pixels.size // (1 if one_channel else pixels.shape[1])
        for first in range(0, len(pixels), _CHUNK):  # squares of all would take twice the memory of the pixels
            part = pixels[first : first + _CHUNK]
            self._total = self._total + part.sum(others, dtype=np.int64)
            self._squares = self._squares + np.square(part, dtype=np.uint16).sum(others, dtype=np.int64)

    def moments(self) -> tuple[list[float], list[float]]:
        """Mean and deviation per channel in units of 255; 1 for a deviation of 0."""
        mean = self._total / self._count
        std = np.sqrt(self._squares / self._count - mean**2)
        return (mean / SCALE).tolist(), [float(s) or 1.0 for s in std / SCALE]


def shift_and_factor(
    mean: Sequence[float], std: Sequence[float], scale: float, dimensions: int
) -> tuple[Tensor, Tensor]:
    """(x / `scale` − `mean`) / `std` as (x − shift) · factor, for samples with this number of dimensions."""
    per_channel = [-1, *[1] * (dimensions - 1)]
    shift = torch.tensor(mean).view(per_channel) * scale
    return shift, 1 / (torch.tensor(std).view(per_channel) * scale)
