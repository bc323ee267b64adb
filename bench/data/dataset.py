"""A labelled image data set in memory, as uint8, and on a device."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Images `[n, channels, height, width]` as uint8 and labels `[n]`, for training and for testing.

    The network's input is (image / `scale` − `mean`) / `std`, with mean and std per channel in units of `scale`.
    """

    name: str
    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    classes: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    def content_hash(self) -> str:
        """SHA-256 over pixels and labels, first 16 hex digits."""
        digest = hashlib.sha256()
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def on(self, device: torch.device) -> tuple["DeviceData", "DeviceData"]:
        """The training and the test set on a device."""
        shift = torch.tensor(self.mean).view(-1, 1, 1) * self.scale
        factor = 1 / (torch.tensor(self.std).view(-1, 1, 1) * self.scale)

        def place(images: Images, labels: Labels) -> DeviceData:
            return DeviceData(
                torch.from_numpy(images).to(device),
                torch.from_numpy(labels).to(device),
                shift.to(device),
                factor.to(device),
            )

        return place(self.train_images, self.train_labels), place(self.test_images, self.test_labels)


@dataclass(frozen=True)
class DeviceData:
    """Samples that live on the device as they are stored; normalised batch by batch.

    `images` `[n, ...]` of any number type, `labels` `[n]`; a sample's input is (image − shift) · factor.
    """

    images: Tensor
    labels: Tensor
    shift: Tensor
    factor: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs `[B, ...]` and labels `[B]` of the samples in `index` `[B]`."""
        return (self.images[index] - self.shift) * self.factor, self.labels[index]

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of all samples in consecutive batches; only one is normalised at a time."""
        for images, labels in zip(self.images.split(size), self.labels.split(size), strict=True):
            yield (images - self.shift) * self.factor, labels

    def everything(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels of all samples."""
        return (self.images - self.shift) * self.factor, self.labels
