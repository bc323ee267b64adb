"""Augmentations of a client's mini-batches, with new random draws for each local step, applied after normalisation.

The numbers are drawn on the host for each image, before the client's round starts, from a random stream of this round;
both gradients of a SAM step therefore use the same pixels. The draws are applied on the device to any batch of images,
for example to the concatenated mini-batches of many clients: offsets refer to images of the same mini-batch. Draws of
zero are valid, so that mini-batches of unequal length can be padded.

For segmentation, y are label maps `[B, height, width]`, which are moved like their images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from fedflat.bench.data.centre import centre, centre_shape
from fedflat.bench.data.label_maps import IGNORED, has_label_maps
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.field_words import means_null
from fedflat.bench.input.frozen import Frozen

Shape = tuple[int, ...]
Pixels = Annotated[int, Field(ge=1, le=4096)]
Draws = dict[str, NDArray[Any]]
"""Random numbers `[B, ...]` by name, for the B images of consecutive mini-batches."""


@dataclass(frozen=True)
class Context:
    """Facts of the data set that augmentations need.

    They are the number of classes, the shape of a stored image, and black after normalisation, which broadcasts to it.
    """

    classes: int
    image_shape: Shape
    black: Tensor


class Augmentation(Frozen):
    """The common base class."""

    label_maps: ClassVar[bool | None] = False
    """Whether it is for labels of pixels only, which it moves with the image; False: for labels of images only; None:
    for both."""

    def output_shape(self, image_shape: Shape) -> Shape:
        """The shape of an input afterwards."""
        return image_shape


class Flip(Augmentation):
    """Horizontal flip of a random share of the images."""

    name: Literal["flip"] = "flip"
    label_maps: ClassVar[bool | None] = None
    probability: float = Field(default=0.5, ge=0, le=1, description="share of the images that are flipped")

    def draw(self, stream: np.random.Generator, sizes: Sequence[int], image_shape: Shape) -> Draws:
        """`chosen` `[B]`: whether the image is flipped."""
        return {"chosen": stream.random(sum(sizes)) < self.probability}

    def apply(self, x: Tensor, y: Tensor, context: Context, draws: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Images `[B, channels, height, width]`."""
        column = torch.arange(x.shape[3], device=x.device)
        source = torch.where(draws["chosen"][:, None], column.flip(0), column)
        labels = y.gather(2, source[:, None, :].expand(y.shape)) if has_label_maps(y) else y
        return x.gather(3, source[:, None, None, :].expand(x.shape)), labels


class Crop(Augmentation):
    """A random window of the image's size, cut from the image with a border around it.

    A black border is equal to padding before normalisation (Caldarola et al., FedGF). FL-Simulator's border has the
    mean of each channel, which is zero after normalisation.
    """

    name: Literal["crop"] = "crop"
    padding: int = Field(default=4, ge=0, le=64, description="width of the border in pixels")
    probability: float = Field(default=1.0, ge=0, le=1, description="share of the images that are cropped")
    pad: Literal["black", "mean"] = Field(default="black", description="colour of the border")

    def draw(self, stream: np.random.Generator, sizes: Sequence[int], image_shape: Shape) -> Draws:
        """`shift` `[B, 2]`: pixels by which the window moves down and right; all positions are equally likely."""
        count = sum(sizes)
        shift = stream.integers(2 * self.padding + 1, size=(2, count)) - self.padding
        shift[:, stream.random(count) >= self.probability] = 0
        return {"shift": shift.T}

    def apply(self, x: Tensor, y: Tensor, context: Context, draws: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Images `[B, channels, height, width]`."""
        count, channels, height, width = x.shape
        framed = x.new_empty(count, channels, height + 2 * self.padding, width + 2 * self.padding)
        framed[:] = context.black if self.pad == "black" else 0.0
        framed[:, :, self.padding : self.padding + height, self.padding : self.padding + width] = x
        top, left = (draws["shift"] + self.padding).unbind(1)
        # The rows of a window are contiguous in memory: copying rows is far faster than copying pixels.
        plane = torch.arange(count * channels, device=x.device).view(count, channels, 1) * framed.shape[2]
        row = plane + (top[:, None] + torch.arange(height, device=x.device))[:, None, :]
        start = row * framed.shape[3] + left[:, None, None]
        return framed.view(-1).unfold(0, width, 1).index_select(0, start.view(-1)).view(x.shape), y


class RandomResizedCrop(Augmentation):
    """A random window of random area and shape, scaled to one size (bilinear), as for ImageNet.

    As torchvision's transform of this name, on stored images: area and the logarithm of the ratio of the sides are
    uniform; if ten windows in a row exceed the image, the whole image is the window.
    """

    name: Literal["random_resized_crop"] = "random_resized_crop"
    least_area: float = Field(default=0.08, gt=0, le=1, description="smallest share of the image's area")
    most_ratio: float = Field(default=4 / 3, ge=1, le=10, description="largest ratio of the window's sides")
    size: Pixels | None = Field(
        examples=[16],
        default=None,
        description="height and width to which the window is scaled; null: those of the stored images",
    )

    def output_shape(self, image_shape: Shape) -> Shape:
        """The size to which windows are scaled."""
        return image_shape if self.size is None else (image_shape[0], self.size, self.size)

    def draw(self, stream: np.random.Generator, sizes: Sequence[int], image_shape: Shape) -> Draws:
        """`cut` `[B, 4]`: pixels that are cut off at the top, left, bottom and right."""
        count, sides = sum(sizes), np.array(image_shape[1:])
        area = stream.uniform(self.least_area, 1, (TRIES, count)) * sides.prod()
        ratio = np.exp(stream.uniform(-1, 1, (TRIES, count)) * np.log(self.most_ratio))  # of width and height
        window = np.rint(np.sqrt(np.stack([area / ratio, area * ratio], axis=2))).astype(np.int64)
        fits = ((window > 0) & (window <= sides)).all(2)
        window = np.where(fits.any(0)[:, None], window[fits.argmax(0), np.arange(count)], sides)
        start = stream.integers(sides - window + 1)
        return {"cut": np.concatenate([start, sides - window - start], axis=1)}

    def apply(self, x: Tensor, y: Tensor, context: Context, draws: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Windows of images `[B, channels, height, width]`."""
        top, left, bottom, right = draws["cut"].unbind(1)
        _, height, width = self.output_shape(x.shape[1:])
        return _stretched(_stretched(x, 2, top, bottom, height), 3, left, right, width), y


TRIES = 10
"""How often a window is drawn that does not exceed the image."""


def _stretched(x: Tensor, axis: int, before: Tensor, after: Tensor, length: int) -> Tensor:
    """Images without `before` `[B]` pixels at the beginning of an axis and `after` at its end, scaled to a length."""
    kept = (x.shape[axis] - before - after)[:, None]
    place = (torch.arange(length, device=x.device) + 0.5) * kept / length - 0.5
    place = place.clamp(min=0).minimum(kept - 1) + before[:, None]
    return _interpolated(x, axis, place, before[:, None] + kept - 1)


def _interpolated(x: Tensor, axis: int, place: Tensor, last: Tensor) -> Tensor:
    """Values of x `[B, ...]` between the positions on an axis that `place` `[B, length]` names, up to `last` `[B, 1]`.

    The axis has then the given length.
    """
    low = place.floor()
    high = (low + 1).minimum(last.to(low.dtype))
    near, far = (_gathered(x, axis, index.long()) for index in (low, high))
    return near.lerp(far, _along((place - low).to(x.dtype), x, axis))


def _gathered(v: Tensor, axis: int, index: Tensor) -> Tensor:
    """The values of v `[B, ...]` at positions `index` `[B, length]` on an axis."""
    shape = list(v.shape)
    shape[axis] = index.shape[1]
    return v.gather(axis, _along(index, v, axis).expand(shape))


def _along(values: Tensor, v: Tensor, axis: int) -> Tensor:
    """Values `[B, length]` with as many dimensions as v `[B, ...]`, the second one at `axis`."""
    shape = [len(v), *[1] * (v.ndim - 1)]
    shape[axis] = values.shape[1]
    return values.view(shape)


class ScaledCrop(Augmentation):
    """For segmentation: the image at a random scale, and a random window of it, as FedDrive trains on Cityscapes.

    The scale is uniform. Images are interpolated linearly without antialiasing; a label is that of the nearest pixel.
    Outside the scaled image, the window has no labels, and the mean colour; it is black in FedDrive's code.
    """

    name: Literal["scaled_crop"] = "scaled_crop"
    label_maps: ClassVar[bool | None] = True
    least: float = Field(default=0.5, gt=0, le=4, description="smallest scale")
    most: float = Field(default=1.5, gt=0, le=4, description="largest scale")
    size: tuple[Pixels, Pixels] | None = Field(
        examples=[[512, 1024]],
        default=None,
        description="height and width of the window in pixels; null: those of the images",
    )

    def output_shape(self, image_shape: Shape) -> Shape:
        """The size of the window."""
        return image_shape if self.size is None else (image_shape[0], *self.size)

    @model_validator(mode="after")
    def _in_order(self) -> "ScaledCrop":
        if self.least > self.most:
            raise UserError(f"scaled_crop: least = {self.least:g} (allowed: at most `most`, {self.most:g})")
        return self

    def draw(self, stream: np.random.Generator, sizes: Sequence[int], image_shape: Shape) -> Draws:
        """`growth` `[B]`: the scale minus 1; `place` `[B, 2]`: of the window, from 0 (top, left) to 1."""
        count = sum(sizes)
        return {"growth": stream.uniform(self.least, self.most, count) - 1, "place": stream.random((count, 2))}

    def apply(self, x: Tensor, y: Tensor, context: Context, draws: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Windows of images `[B, channels, height, width]` and of label maps `[B, height, width]`."""
        for axis, length in enumerate(self.size or x.shape[2:]):
            full, scale = x.shape[2 + axis], (1 + draws["growth"])[:, None]
            first = draws["place"][:, axis, None] * (full * scale - length)
            at = (torch.arange(length, device=x.device) + 0.5 + first) / scale  # from 0 to `full` inside the image
            outside, last = (at < 0) | (at >= full), torch.full_like(at[:, :1], full - 1)
            x = _interpolated(x, 2 + axis, (at - 0.5).clamp(min=0).minimum(last), last)
            x = x.masked_fill(_along(outside, x, 2 + axis), 0)
            y = _gathered(y, 1 + axis, at.clamp(min=0).minimum(last).long())
            y = y.masked_fill(_along(outside, y, 1 + axis), IGNORED)
        return x, y


class Mixup(Augmentation):
    """x' = Lx + (1−L)x[P] for one L ~ Beta(a, a) and one permutation P per mini-batch; labels are mixed likewise.

    As Caldarola et al. 2022 use it.
    """

    name: Literal["mixup"] = "mixup"
    a: float = Field(default=1.0, ge=0, description="parameter of the Beta distribution; 0: plain batches")

    def draw(self, stream: np.random.Generator, sizes: Sequence[int], image_shape: Shape) -> Draws:
        """`share` L `[B]`, equal within a mini-batch; `offset` `[B]`: the partner's position minus the image's."""
        if self.a == 0:
            return {}
        shares, offsets = [], []
        for size in sizes:
            shares.append(np.full(size, stream.beta(self.a, self.a)))
            offsets.append(stream.permutation(size) - np.arange(size))
        return {"share": np.concatenate(shares), "offset": np.concatenate(offsets)}

    def apply(self, x: Tensor, y: Tensor, context: Context, draws: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Mixed inputs `[B, ...]`, and class probabilities `[B, C]`: their cross-entropy is the mixed loss."""
        if self.a == 0:
            return x, y
        partner = torch.arange(len(x), device=x.device) + draws["offset"]
        share, rest = draws["share"].to(x.dtype), (1 - draws["share"]).to(x.dtype)
        one_hot = y[:, None] == torch.arange(context.classes, device=y.device)  # F.one_hot may check y on the host
        labels = one_hot.to(x.dtype)
        return _mixed(x, share, rest, partner), _mixed(labels, share, rest, partner)


def _mixed(v: Tensor, share: Tensor, rest: Tensor, partner: Tensor) -> Tensor:
    """share · v + rest · (v of the partners), for v `[B, ...]`."""
    share, rest = (weight.view(-1, *[1] * (v.ndim - 1)) for weight in (share, rest))
    return v.index_select(0, partner).mul_(rest).add_(share * v)


class Cutout(Augmentation):
    """One square of zeros per image, with its centre anywhere on the image, clipped at the border.

    As Caldarola et al. 2022 use it.
    """

    name: Literal["cutout"] = "cutout"
    size: int = Field(
        examples=[16], ge=1, le=1024, description="side in pixels; published: 16 for CIFAR-10, 8 for CIFAR-100"
    )

    def draw(self, stream: np.random.Generator, sizes: Sequence[int], image_shape: Shape) -> Draws:
        """`centre` `[B, 2]`: row and column."""
        return {"centre": np.stack([stream.integers(length, size=sum(sizes)) for length in image_shape[1:]], axis=1)}

    def apply(self, x: Tensor, y: Tensor, context: Context, draws: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Images `[B, channels, height, width]` with holes from centre − size/2 to centre + size/2 − 1."""
        first = draws["centre"] - self.size // 2
        rows, columns = (self._hole(x.shape[2 + axis], first[:, axis, None]) for axis in (0, 1))
        return x * ~(rows[:, None, :, None] & columns[:, None, None, :]), y

    def _hole(self, length: int, first: Tensor) -> Tensor:
        """`[B, length]`: the coordinates inside each image's hole, which starts at `first` `[B, 1]`."""
        position = torch.arange(length, device=first.device)
        return (position >= first) & (position < first + self.size)


AnyAugmentation = Flip | Crop | RandomResizedCrop | ScaledCrop | Mixup | Cutout
OF_IMAGES = (Flip, Crop, RandomResizedCrop, ScaledCrop, Cutout)
"""Augmentations that need the shape (channels, height, width)."""
AUGMENTATIONS: dict[str, type[AnyAugmentation]] = {
    "flip": Flip,
    "crop": Crop,
    "random_resized_crop": RandomResizedCrop,
    "scaled_crop": ScaledCrop,
    "mixup": Mixup,
    "cutout": Cutout,
}

PRESETS: dict[str, tuple[AnyAugmentation, ...]] = {
    "standard": (Crop(), Flip()),
    "fl_simulator": (Flip(), Crop(probability=0.5, pad="mean")),
}
"""Names for several augmentations: `standard` is Caldarola et al.'s and FedGF's, `fl_simulator` the released code's."""


def parse_augmentations(given: Any) -> tuple[AnyAugmentation, ...] | None:
    """The augmentations for the `augmentation` of a configuration, in order; None if there is none.

    Accepted: a name, a mapping with name and options, the name of a preset, or a list of these.
    """
    items = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    augmentations = tuple(augmentation for item in items for augmentation in _parse(item))
    if sum(isinstance(augmentation, Mixup) for augmentation in augmentations) > 1:
        raise UserError("augmentation: mixup is allowed only once, because it needs one label per image")
    return augmentations or None


def _parse(item: Any) -> Sequence[AnyAugmentation]:
    if isinstance(item, AnyAugmentation):
        return [item]
    fields = item if isinstance(item, Mapping) else {"name": item}
    name = fields.get("name", "")
    if isinstance(name, str) and name in PRESETS:
        if len(fields) > 1:
            raise UserError(f"augmentation {name} has no options (allowed: its name alone)")
        return PRESETS[name]
    if not isinstance(name, str) or name not in AUGMENTATIONS:
        raise unknown("augmentation", name, [*AUGMENTATIONS, *PRESETS], "null" if means_null(name) else None)
    return [AUGMENTATIONS[name].parse(fields, where=f"augmentation {name}")]


@dataclass(frozen=True)
class Augment:
    """A sequence of augmentations. The key of a draw is the augmentation's position in it and the name of the draw.

    With `crop`, the centre of an augmented image is cut out, if the image is larger.
    """

    augmentations: tuple[AnyAugmentation, ...]
    context: Context
    crop: int | None = None

    def of_stored(self, image_shape: Shape, crop: int | None) -> "Augment":
        """The same augmentations for stored images of this shape."""
        return replace(self, context=replace(self.context, image_shape=image_shape), crop=crop)

    @property
    def output_shape(self) -> Shape:
        """The shape of an input after all augmentations."""
        return augmented_shape(self.augmentations, self.context.image_shape, self.crop)

    def draw(self, stream: np.random.Generator, sizes: Sequence[int]) -> dict[tuple[int, str], NDArray[Any]]:
        """Draws for consecutive mini-batches of these sizes; each is `[Σ sizes, ...]`."""
        shape, draws = self.context.image_shape, dict[tuple[int, str], NDArray[Any]]()
        for place, augmentation in enumerate(self.augmentations):
            draws |= {(place, name): draw for name, draw in augmentation.draw(stream, sizes, shape).items()}
            shape = augmentation.output_shape(shape)
        return draws

    def __call__(self, x: Tensor, y: Tensor, draws: Mapping[tuple[int, str], Tensor]) -> tuple[Tensor, Tensor]:
        """Images `[B, ...]` and labels `[B]` of any number of mini-batches, with their draws `[B, ...]`."""
        for place, augmentation in enumerate(self.augmentations):
            own = {name: draw for (at, name), draw in draws.items() if at == place}
            x, y = augmentation.apply(x, y, self.context, own)
        return (x if self.crop is None else centre(x, self.crop).contiguous()), y


def augmented_shape(augmentations: Sequence[AnyAugmentation], image_shape: Shape, crop: int | None = None) -> Shape:
    """The shape of a stored image after all augmentations, of which the centre is cut out."""
    for augmentation in augmentations:
        image_shape = augmentation.output_shape(image_shape)
    return centre_shape(image_shape, crop)


Augmentations = Annotated[
    tuple[AnyAugmentation, ...] | None,
    BeforeValidator(
        parse_augmentations,
        json_schema_input_type=str | dict[str, Any] | list[str | dict[str, Any]] | None,
    ),
]
"""The field `augmentation` of `Training`, which has one value for all equivalent spellings."""
