"""Augmentations of a client's mini-batch, drawn anew for each local step and applied after normalisation.

Each treats the whole batch at once, on its device; its draws come from the step's own stream, so that all passes of a
step (SAM's two) see the same pixels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor
from torch.nn import functional as F

from bench.errors import UserError, unknown
from bench.frozen import Frozen

Augment = Callable[[Tensor, Tensor, np.random.Generator], tuple[Tensor, Tensor]]
"""Inputs and labels of a mini-batch, augmented with draws from a generator."""


@dataclass(frozen=True)
class Context:
    """What augmentations know of the data: the number of classes, and what black is after normalisation `[C, 1, 1]`."""

    classes: int
    black: Tensor


class Flip(Frozen):
    """Left and right exchanged in a random share of the images."""

    name: Literal["flip"] = "flip"
    probability: float = Field(default=0.5, ge=0, le=1, description="share of the images that are flipped")

    def apply(self, x: Tensor, y: Tensor, context: Context, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Images `[B, channels, height, width]`, one draw each."""
        chosen = torch.from_numpy(stream.random(len(x)) < self.probability).to(x.device)
        return torch.where(chosen[:, None, None, None], x.flip(3), x), y


class Crop(Frozen):
    """A window of the image's own size, anywhere in the image with a border around it.

    A border of black is what padding before normalisation gives (Caldarola et al., FedGF); a border of the channels'
    means, zero after normalisation, is FL-Simulator's.
    """

    name: Literal["crop"] = "crop"
    padding: int = Field(default=4, ge=0, le=64, description="width of the border in pixels")
    probability: float = Field(default=1.0, ge=0, le=1, description="share of the images that are cropped at all")
    pad: Literal["black", "mean"] = Field(default="black", description="what the border is made of")

    def apply(self, x: Tensor, y: Tensor, context: Context, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Images `[B, channels, height, width]`; every position of the window is equally likely."""
        count, channels, height, width = x.shape
        corner = stream.integers(2 * self.padding + 1, size=(2, count))
        corner[:, stream.random(count) >= self.probability] = self.padding  # where the image itself is
        top, left = torch.from_numpy(corner).to(x.device)
        border = context.black.to(x) if self.pad == "black" else x.new_zeros(1, 1, 1)
        framed = border.expand(count, channels, height + 2 * self.padding, width + 2 * self.padding).clone()
        framed[:, :, self.padding : self.padding + height, self.padding : self.padding + width] = x
        windows = framed.unfold(2, height, 1).unfold(3, width, 1)  # a view: [B, C, top, left, height, width]
        return windows[torch.arange(count, device=x.device), :, top, left], y


class Mixup(Frozen):
    """x' = Lx + (1−L)x[P] for one L ~ Beta(a, a) and one permutation P per batch; labels are mixed likewise.

    As Caldarola et al. 2022 use it.
    """

    name: Literal["mixup"] = "mixup"
    a: float = Field(default=1.0, ge=0, description="parameter of the Beta distribution; 0: plain batches")

    def apply(self, x: Tensor, y: Tensor, context: Context, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Mixed inputs `[B, ...]`, and class probabilities `[B, C]`: their cross-entropy is the mixed loss."""
        if self.a == 0:
            return x, y
        share = float(stream.beta(self.a, self.a))
        other = torch.from_numpy(stream.permutation(len(y))).to(y.device)
        labels = F.one_hot(y, context.classes).to(x.dtype)
        return share * x + (1 - share) * x[other], share * labels + (1 - share) * labels[other]


class Cutout(Frozen):
    """One square of zeros per image, its centre anywhere on the image, clipped at the border.

    As Caldarola et al. 2022 use it.
    """

    name: Literal["cutout"] = "cutout"
    size: int = Field(ge=1, le=1024, description="side in pixels; as published, 16 for CIFAR-10, 8 for CIFAR-100")

    def apply(self, x: Tensor, y: Tensor, context: Context, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Images `[B, channels, height, width]` with holes from centre − size/2 to centre + size/2 − 1."""
        inside = [
            self._hole(x.shape[axis], stream.integers(x.shape[axis], size=len(x))).to(x.device) for axis in (2, 3)
        ]
        hole = inside[0][:, None, :, None] & inside[1][:, None, None, :]
        return x.masked_fill(hole, 0.0), y

    def _hole(self, length: int, centres: np.ndarray) -> Tensor:
        """`[B, length]`: the coordinates inside each image's hole."""
        first = torch.from_numpy(centres)[:, None] - self.size // 2
        position = torch.arange(length)[None, :]
        return (position >= first) & (position < first + self.size)


AnyAugmentation = Flip | Crop | Mixup | Cutout
AUGMENTATIONS: dict[str, type[AnyAugmentation]] = {"flip": Flip, "crop": Crop, "mixup": Mixup, "cutout": Cutout}

PRESETS: dict[str, tuple[AnyAugmentation, ...]] = {
    "standard": (Crop(), Flip()),
    "fl_simulator": (Flip(), Crop(probability=0.5, pad="mean")),
}
"""Names for several augmentations: those of Caldarola et al. and FedGF, and those of FL-Simulator's release."""


def parse_augmentations(given: Any) -> tuple[AnyAugmentation, ...] | None:
    """The augmentations that a configuration's `augmentation` means, in order; None for none.

    A name, a mapping of name and options, a preset's name, or a list of these.
    """
    parts = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    augmentations = tuple(augmentation for part in parts for augmentation in _parse(part))
    if sum(isinstance(augmentation, Mixup) for augmentation in augmentations) > 1:
        raise UserError("augmentation: mixup can stand only once, since it needs one label per image")
    return augmentations or None


def _parse(part: Any) -> Sequence[AnyAugmentation]:
    if isinstance(part, AnyAugmentation):
        return [part]
    fields = part if isinstance(part, Mapping) else {"name": part}
    name = fields.get("name", "")
    if isinstance(name, str) and name in PRESETS:
        if len(fields) > 1:
            raise UserError(f"augmentation {name} has no options (allowed: its name alone)")
        return PRESETS[name]
    if not isinstance(name, str) or name not in AUGMENTATIONS:
        raise unknown("augmentation", name, [*AUGMENTATIONS, *PRESETS])
    return [AUGMENTATIONS[name].parse(fields, where=f"augmentation {name}")]


Augmentations = Annotated[
    tuple[AnyAugmentation, ...] | None,
    BeforeValidator(
        parse_augmentations,
        json_schema_input_type=str | dict[str, Any] | list[str | dict[str, Any]] | None,
    ),
]
"""A `Training`'s augmentation: equal however it was written."""
