"""Augmentations of a client's mini-batch, drawn anew for each local step and applied after normalisation.

mixup and cutout as Caldarola et al. 2022 use them. All passes of a step (SAM's two) see the same pixels.
"""

from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor
from torch.nn import functional as F

from bench.frozen import Frozen


class Mixup(Frozen):
    """x' = Lx + (1−L)x[P] for one L ~ Beta(a, a) and one permutation P per batch; labels are mixed likewise."""

    name: Literal["mixup"] = "mixup"
    a: float = Field(default=1.0, ge=0, description="parameter of the Beta distribution; 0: plain batches")

    def apply(self, x: Tensor, y: Tensor, classes: int, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Mixed inputs `[B, ...]`, and class probabilities `[B, C]`: their cross-entropy is the mixed loss."""
        if self.a == 0:
            return x, y
        share = float(stream.beta(self.a, self.a))
        other = torch.from_numpy(stream.permutation(len(y))).to(y.device)
        labels = F.one_hot(y, classes).to(x.dtype)
        return share * x + (1 - share) * x[other], share * labels + (1 - share) * labels[other]


class Cutout(Frozen):
    """One square of zeros per image, its centre anywhere on the image, clipped at the border."""

    name: Literal["cutout"] = "cutout"
    size: int = Field(ge=1, description="side of the square in pixels; 16 for CIFAR-10, 8 for CIFAR-100 as published")

    def apply(self, x: Tensor, y: Tensor, classes: int, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
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


def _by_name(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


Augmentation = Annotated[Mixup | Cutout, Field(discriminator="name"), BeforeValidator(_by_name)]
"""By name alone (`mixup`), or with its options (`{name: cutout, size: 4}`)."""
