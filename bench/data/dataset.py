"""A labelled data set: its samples as stored, on a device, and in batches."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.input.content import short_hash

Images = NDArray[np.uint8] | NDArray[np.float32]
Labels = NDArray[np.int64]
Subset = Literal["train", "test"]


@dataclass(frozen=True)
class Samples:
    """Images `[n, channels, height, width]`, or other inputs `[n, ...]`, and labels `[n]`, in memory or mapped files.

    Inputs are uint8 or float32. `groups` `[n]`, if the source has them, are a second label: the coarse label, domain,
    or owner of a sample. `names` are the names of the images in the source. `stored_hash` is the content hash, if it is
    already known.
    """

    images: Images
    labels: Labels
    groups: Labels | None = None
    names: NDArray[np.str_] | None = None
    stored_hash: str | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: slice | NDArray[np.bool_]) -> "Samples":
        """The selected samples."""
        groups = None if self.groups is None else self.groups[which]
        names = None if self.names is None else self.names[which]
        return Samples(self.images[which], self.labels[which], groups, names)

    def content_hash(self) -> str:
        """SHA-256 over inputs, labels and groups, each with its shape, first 16 hex digits."""
        if self.stored_hash is not None:
            return self.stored_hash
        parts: list[str | memoryview] = []
        for array in (self.images, self.labels, self.groups):
            if array is not None:
                parts += [np.ascontiguousarray(array).data, str(array.shape)]
        return short_hash(*parts)

    def is_intact(self) -> bool:
        """Whether the stored hash agrees with the samples, which are read completely."""
        return replace(self, stored_hash=None).content_hash() == self.content_hash()

    def on(self, device: torch.device, shift: Tensor, factor: Tensor) -> "DeviceData":
        """The samples on a device. Their batches are normalised by (image − shift) · factor."""
        images, labels = _tensor(self.images), _tensor(self.labels)
        return DeviceData(images.to(device), labels.to(device), shift.to(device), factor.to(device))


@dataclass(frozen=True)
class Dataset:
    """Training and test samples with the number of classes and the normalisation.

    The input of a model is (image / `scale` − `mean`) / `std`, with mean and std per channel, the first dimension of
    a sample, in units of `scale`; one number of each serves all channels.
    """

    name: str
    train: Samples
    test: Samples
    classes: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    _copies: dict[torch.device, tuple["DeviceData", "DeviceData"]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of one input: (channels, height, width) of images, (channels, length) of signals."""
        return tuple(self.train.images.shape[1:])

    def content_hash(self) -> str:
        """SHA-256 over the hashes of both subsets, first 16 hex digits."""
        return short_hash(f"{self.train.content_hash()}:{self.test.content_hash()}")

    def on(self, device: torch.device) -> tuple["DeviceData", "DeviceData"]:
        """The training and test samples on a device. There is one copy per device, which all callers share."""
        if device not in self._copies:
            per_channel = [-1, *[1] * (len(self.image_shape) - 1)]
            shift = torch.tensor(self.mean).view(per_channel) * self.scale
            factor = 1 / (torch.tensor(self.std).view(per_channel) * self.scale)
            self._copies[device] = self.train.on(device, shift, factor), self.test.on(device, shift, factor)
        return self._copies[device]


def _tensor(array: NDArray[Any]) -> Tensor:
    """A tensor that shares the array's memory, without torch's warning that a memory map is read-only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


@dataclass(frozen=True)
class DeviceData:
    """Samples on a device in their stored number format; each batch is normalised when it is used.

    `images` `[n, ...]` of any number format, `labels` `[n]`; the input of a model is (image − shift) · factor.
    """

    images: Tensor
    labels: Tensor
    shift: Tensor
    factor: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs `[B, ...]` and labels `[B]` of the samples in `index` `[B]`."""
        return self._inputs(self.images.index_select(0, index)), self.labels.index_select(0, index)

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of all samples in consecutive batches; each batch is normalised when it is requested."""
        for images, labels in zip(self.images.split(size), self.labels.split(size), strict=True):
            yield self._inputs(images), labels

    def _inputs(self, images: Tensor) -> Tensor:
        return (images - self.shift).mul_(self.factor)


@dataclass(frozen=True)
class Batches:
    """All samples, or those in `index` `[n]`, in batches. Every iteration computes the batches again."""

    data: DeviceData
    size: int
    index: Tensor | None = None

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.data if self.index is None else self.index)

    def __len__(self) -> int:
        return math.ceil(self.samples / self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.index is None:
            return self.data.batches(self.size)
        return map(self.data.batch, self.index.split(self.size))
