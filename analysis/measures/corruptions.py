"""Corruptions of test images, for data sets that have no published corrupted version.

They have other names than the corruptions of CIFAR-C (Hendrycks and Dietterich, 2019), because accuracies are not
comparable between the two sets. Pixels are in [0, 1] before and after. Lengths are fractions of the image's height, so
that 8×8 and 32×32 images are corrupted to a similar degree. All runs get the same corrupted images: random numbers are
keyed by the name and severity of a corruption, and are drawn image by image, so that they do not depend on the batch
size.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.numerics.streams import numpy_stream

Corrupt = Callable[[Tensor, float, np.random.Generator], Tensor]
"""Maps images `[B, channels, height, width]` in [0, 1], a strength and a generator to corrupted images, not yet clipped
to [0, 1]."""


def additive_noise(x: Tensor, deviation: float, draws: np.random.Generator) -> Tensor:
    """x + N(0, deviation²), independently for each value of each channel."""
    return x + deviation * torch.from_numpy(draws.standard_normal(x.shape, dtype=np.float32)).to(x)


def impulses(x: Tensor, share: float, draws: np.random.Generator) -> Tensor:
    """A share of the values becomes 0 or 1, with equal probability."""
    u = torch.from_numpy(draws.random(x.shape, dtype=np.float32)).to(x)
    return torch.where(u < share / 2, 0.0, torch.where(u < share, 1.0, x))


def soft_focus(x: Tensor, width: float, _: np.random.Generator) -> Tensor:
    """Gaussian blur with standard deviation width × height, truncated at three deviations; edges are mirrored."""
    deviation = width * x.shape[-2]
    reach = min(math.ceil(3 * deviation), min(x.shape[-2:]) - 1)
    steps = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
    kernel = torch.exp(-(steps**2) / (2 * deviation**2))
    kernel = (kernel / kernel.sum()).repeat(x.shape[1], 1)
    padded = F.pad(x, (reach,) * 4, mode="reflect")
    down = F.conv2d(padded, kernel[:, None, :, None], groups=x.shape[1])
    return F.conv2d(down, kernel[:, None, None, :], groups=x.shape[1])


def low_contrast(x: Tensor, contrast: float, _: np.random.Generator) -> Tensor:
    """m + contrast × (x − m), with m the mean of the image."""
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    return mean + contrast * (x - mean)


def lighter(x: Tensor, added: float, _: np.random.Generator) -> Tensor:
    """x + added."""
    return x + added


def occlusion(x: Tensor, side: float, draws: np.random.Generator) -> Tensor:
    """A black square with sides of side × height pixels, rounded, at a random place within the image."""
    height, width = x.shape[-2:]
    length = max(1, round(side * height))
    places = torch.from_numpy(draws.random((len(x), 2))).to(x.device)
    top, left = ((places[:, k] * (size - length + 1)).long() for k, size in enumerate((height, width)))
    rows, columns = (torch.arange(size, device=x.device) for size in (height, width))
    in_rows = (rows >= top[:, None]) & (rows < top[:, None] + length)
    in_columns = (columns >= left[:, None]) & (columns < left[:, None] + length)
    return x.masked_fill((in_rows[:, :, None] & in_columns[:, None, :])[:, None], 0.0)


@dataclass(frozen=True)
class Corruption:
    """A kind of corruption, and its strengths at severities 1, 2, ..."""

    corrupt: Corrupt
    strengths: tuple[float, ...]


CORRUPTIONS: Mapping[str, Corruption] = {
    "additive_noise": Corruption(additive_noise, (0.06, 0.12, 0.2, 0.3, 0.45)),
    "impulses": Corruption(impulses, (0.02, 0.05, 0.1, 0.2, 0.3)),
    "soft_focus": Corruption(soft_focus, (0.03, 0.05, 0.08, 0.11, 0.15)),
    "low_contrast": Corruption(low_contrast, (0.75, 0.5, 0.35, 0.2, 0.1)),
    "lighter": Corruption(lighter, (0.1, 0.2, 0.3, 0.4, 0.5)),
    "occlusion": Corruption(occlusion, (0.2, 0.3, 0.4, 0.5, 0.6)),
}
SEVERITIES = 5


@dataclass(frozen=True)
class Corrupted:
    """Test images that are corrupted and normalised batch by batch; every pass gives the same images.

    `scale` is the largest value of a stored pixel.
    """

    clean: DeviceData
    scale: float
    size: int
    corruption: str
    severity: int

    def __len__(self) -> int:
        return math.ceil(len(self.clean) / self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        kind = CORRUPTIONS[self.corruption]
        draws = numpy_stream(0, f"corruption-{self.corruption}", self.severity)
        for images, labels in self.clean.stored_batches(self.size):
            pixels = images.float() / self.scale
            corrupted = kind.corrupt(pixels, kind.strengths[self.severity - 1], draws).clamp(0, 1)
            yield self.clean.inputs(corrupted * self.scale), labels
