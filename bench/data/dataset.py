"""A labelled data set: its samples as stored, on a device, and in batches."""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedflat.bench.data.centre import centre, centre_shape
from fedflat.bench.data.label_maps import IGNORED, UNLABELLED, LabelMaps
from fedflat.bench.data.moments import shift_and_factor
from fedflat.bench.data.tokens import Tokens, TokenShape, are_tokens
from fedflat.bench.host.memory import free_memory
from fedflat.bench.input.content import short_hash

Images = NDArray[np.uint8] | NDArray[np.float32] | Tokens
Labels = NDArray[np.int64]
Subset = Literal["train", "test"]


@dataclass(frozen=True)
class Samples:
    """Images `[n, channels, height, width]`, or other inputs `[n, ...]`, and labels `[n]`, in memory or mapped files.

    Inputs are uint8, float32, or token ids in int32. `groups` `[n]`, if the source has them, are a second label: the
    coarse label, domain, or owner of a sample. `names` are the names of the images in the source. `stored_hash` is the
    content hash, if it is already known.

    `maps` `[n, height, width]`, for segmentation, are the classes of all pixels, 255 without one. `labels` are then the
    most frequent class of each image, apart from the background if there is one: partitions use them.

    If the samples are selected of a `whole` that is too large to be copied, `images` and `maps` are those of the whole,
    and `rows` `[n]` are the positions of the samples in it.
    """

    images: Images
    labels: Labels
    groups: Labels | None = None
    names: NDArray[np.str_] | None = None
    stored_hash: str | None = None
    whole: "Samples | None" = None
    rows: Labels | None = None
    maps: LabelMaps | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: slice | NDArray[np.bool_] | Labels) -> "Samples":
        """The selected samples."""
        groups = None if self.groups is None else self.groups[which]
        names = None if self.names is None else self.names[which]
        if self.rows is not None:
            rows = self.rows[which]
            return Samples(self.images, self.labels[which], groups, names, whole=self.whole, rows=rows, maps=self.maps)
        maps = None if self.maps is None else self.maps[which]
        return Samples(self.images[which], self.labels[which], groups, names, maps=maps)

    def selected(self, which: NDArray[np.bool_]) -> "Samples":
        """As `samples[which]`, but the images are not copied."""
        return replace(self, whole=self, rows=np.arange(len(self)), stored_hash=None)[which]

    def at(self, positions: Labels, groups: Labels | None) -> "Samples":
        """The samples at these positions, in this order, with these groups, if it has none itself; the images are not
        copied."""
        chosen = replace(self, whole=self, rows=np.arange(len(self)), stored_hash=None)[positions]
        return replace(chosen, groups=groups)

    def content_hash(self) -> str:
        """SHA-256 over inputs, labels, groups and label maps, each with its shape, first 16 hex digits; if they are
        selected, over the hash of the whole, their positions in it, and groups that the whole does not have."""
        if self.stored_hash is not None:
            return self.stored_hash
        if self.whole is not None:
            own = (
                [] if self.groups is None or self.whole.groups is not None else [np.ascontiguousarray(self.groups).data]
            )
            return short_hash(self.whole.content_hash(), np.ascontiguousarray(self.rows).data, *own)
        parts: list[str | memoryview] = []
        for array in (self.images, self.labels, self.groups, self.maps):
            if array is not None:
                parts += [np.ascontiguousarray(array).data, str(array.shape)]
        return short_hash(*parts)

    def is_intact(self) -> bool:
        """Whether the stored hash agrees with the samples, or those that they are selected of: all are read."""
        if self.whole is not None:
            return self.whole.is_intact()
        return replace(self, stored_hash=None).content_hash() == self.content_hash()

    @property
    def large(self) -> list[NDArray[Any]]:
        """The images, and the label maps if there are any."""
        return [self.images] if self.maps is None else [self.images, self.maps]

    def on(
        self,
        device: torch.device,
        shift: Tensor,
        factor: Tensor,
        stored: Mapping[int, Tensor] | None = None,
        crop: int | None = None,
    ) -> "DeviceData":
        """The samples on a device. Their batches are normalised by (image − shift) · factor.

        `stored`: the tensors of `large`, on this device or on the host, by the `id` of their arrays; None: they are
        copied to the device. `crop`: see `DeviceData`.
        """
        if stored is None:
            stored = {id(array): shared_tensor(array).to(device) for array in self.large}
        rows = None if self.rows is None else torch.from_numpy(self.rows).to(device)
        maps = None if self.maps is None else stored[id(self.maps)]
        labels = shared_tensor(self.labels).to(device)
        return DeviceData(stored[id(self.images)], labels, shift.to(device), factor.to(device), rows, maps, crop)


@dataclass(frozen=True)
class Dataset:
    """Training and test samples with the number of classes and the normalisation.

    The input of a model is (image / `scale` − `mean`) / `std`, with mean and std per channel, the first dimension of
    a sample, in units of `scale`; one number of each serves all channels. `test_parts` are the positions of the test
    samples in each of several test subsets, which together are all of them; empty: there is one. `crop`: the side of
    the central square of each image that models see; None: the whole image.

    `validation` are samples on which settings are compared, and that no client trains on; None: the source has none.
    `true_labels` `[n]` are those of the training samples if some of the labels that are trained differ from them.
    """

    name: str
    train: Samples
    test: Samples
    classes: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    test_parts: Mapping[str, Labels] = field(default_factory=dict)
    crop: int | None = None
    validation: Samples | None = None
    true_labels: Labels | None = None
    _copies: dict[torch.device, tuple["DeviceData", "DeviceData"]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def has_label_maps(self) -> bool:
        """Whether the pixels have labels, for segmentation, and not the images."""
        return self.train.maps is not None

    @cached_property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of one input: (channels, height, width) of images, (channels, length) of signals; a `TokenShape` of
        token ids."""
        shape = self.train.images.shape[1:]
        if self.train.images.dtype != np.int32:
            return centre_shape(shape, self.crop)
        parts = (self.train, self.test, self.validation)
        return TokenShape(shape, 1 + max(int(part.images.max()) for part in parts if part is not None))

    def content_hash(self) -> str:
        """SHA-256 over the hashes of both subsets, and of what else there is of test subsets, samples for validation
        and true labels; first 16 hex digits."""
        parts = [part for name, places in self.test_parts.items() for part in (name, np.ascontiguousarray(places).data)]
        if self.validation is not None:
            parts += ["validation", self.validation.content_hash()]
        if self.true_labels is not None:
            parts += ["true labels", np.ascontiguousarray(self.true_labels).data]
        return short_hash(f"{self.train.content_hash()}:{self.test.content_hash()}", *parts)

    def on(self, device: torch.device) -> tuple["DeviceData", "DeviceData"]:
        """The training and test samples on a device. There is one copy per device, which all callers share.

        Images and label maps that would fill more than half of the memory of a GPU that is free now stay on the host.
        """
        if device not in self._copies:
            shift, factor = shift_and_factor(self.mean, self.std, self.scale, len(self.image_shape))
            arrays = {id(array): array for part in (self.train, self.test) for array in part.large}
            place = device if _fits(arrays.values(), device) else torch.device("cpu")
            stored = {key: shared_tensor(array).to(place) for key, array in arrays.items()}
            train, test = (part.on(device, shift, factor, stored, self.crop) for part in (self.train, self.test))
            self._copies[device] = train, test
        return self._copies[device]

    def validation_on(self, device: torch.device) -> "DeviceData | None":
        """The samples for validation on a device; None if there are none."""
        if self.validation is None:
            return None
        shift, factor = shift_and_factor(self.mean, self.std, self.scale, len(self.image_shape))
        return self.validation.on(device, shift, factor, crop=self.crop)


def _fits(arrays: Iterable[NDArray[Any]], device: torch.device) -> bool:
    """Whether arrays fill at most half of the memory of a device that is free."""
    return sum(array.nbytes for array in arrays) <= free_memory(device) / 2


def shared_tensor(array: NDArray[Any]) -> Tensor:
    """A tensor that shares the array's memory, without torch's warning that a memory map is read-only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


@dataclass(frozen=True)
class DeviceData:
    """Samples on a device in their stored number format; each batch is normalised when it is used.

    `images` `[n, ...]` of any number format, `labels` `[n]`; the input of a model is (image − shift) · factor. Images
    may be on the host, from where each batch is sent to the device of all else. If `images` hold more than these
    samples, `rows` `[n]` are the positions of the samples in them. Token ids are inputs as they are, in int64.

    `maps` `[n, height, width]`, stored like the images, are the label maps of segmentation. Batches then have these in
    place of labels, as whole numbers with `IGNORED` for pixels without a class.

    `crop`: inputs are the central squares of the images with this side; augmentations get the whole images.
    """

    images: Tensor
    labels: Tensor
    shift: Tensor
    factor: Tensor
    rows: Tensor | None = None
    maps: Tensor | None = None
    crop: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return centre_shape(self.images.shape[1:], self.crop)

    @property
    def dtype(self) -> torch.dtype:
        """The number format of inputs."""
        return torch.int64 if are_tokens(self.images.dtype) else torch.result_type(self.images, self.shift)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs `[B, ...]` and labels `[B]`, or label maps `[B, height, width]`, of the samples in `index` `[B]`."""
        return self.inputs(self._stored(self.images, index)), self._labels(index)

    def whole_batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """As `batch`, but whole images in place of their centres, for augmentations."""
        return self._normalised(self._stored(self.images, index)), self._labels(index)

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of all samples in consecutive batches; each batch is normalised when it is requested."""
        for images, labels in self.stored_batches(size):
            yield self.inputs(images), labels

    def stored_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """As `batches`, but images as they are stored."""
        if self.rows is None and self.maps is None:
            images: Iterable[Tensor] = (part.to(self.labels.device) for part in self.images.split(size))
            yield from zip(images, self.labels.split(size), strict=True)
        else:
            for index in torch.arange(len(self), device=self.labels.device).split(size):
                yield self._stored(self.images, index), self._labels(index)

    def inputs(self, images: Tensor) -> Tensor:
        """The centres of stored images, normalised."""
        return self._normalised(centre(images, self.crop))

    def _normalised(self, images: Tensor) -> Tensor:
        return images.long() if are_tokens(images.dtype) else (images - self.shift).mul_(self.factor)

    def _labels(self, index: Tensor) -> Tensor:
        if self.maps is None:
            return self.labels.index_select(0, index)
        maps = self._stored(self.maps, index).long()
        return maps.masked_fill(maps == UNLABELLED, IGNORED)

    def _stored(self, values: Tensor, index: Tensor) -> Tensor:
        """The selected ones of values `[n, ...]`, images or label maps, on the device of all else."""
        places = index if self.rows is None else self.rows.index_select(0, index)
        return values.index_select(0, places.to(values.device)).to(self.labels.device)


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
