"""Small convolutional networks for segmentation of small images: 99,185 parameters with 11 classes."""

from collections.abc import Callable
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedflat.bench.models.base import ImageShape, NamedModel, check_multiple, check_size
from fedflat.bench.models.buffer_mode import BufferMode, GivenMode

Norm = Callable[[int], nn.Module]
"""A normalisation layer for a number of channels."""


class FCNGNChoice(NamedModel):
    """With GroupNorm: the default for segmentation of small images. It has no options."""

    name: Literal["fcn_gn"] = "fcn_gn"
    label_maps: ClassVar[bool | None] = True

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images with sides that are multiples of 4."""
        return _built(self.name, image_shape, classes, lambda channels: nn.GroupNorm(4, channels))


class FCNBNChoice(NamedModel):
    """With BatchNorm, whose statistics are averaged, or stay with the clients."""

    name: Literal["fcn_bn"] = "fcn_bn"
    label_maps: ClassVar[bool | None] = True
    buffers: GivenMode = Field(
        default="average",
        description="statistics of BatchNorm: average (sent and averaged like parameters), local (SiloBN: each "
        "client keeps its own), or {local: [PATTERN, ...]} (those whose names match)",
    )

    @property
    def buffer_mode(self) -> BufferMode:
        """The field `buffers`."""
        return self.buffers

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images with sides that are multiples of 4."""
        return _built(self.name, image_shape, classes, nn.BatchNorm2d)


def _built(model: str, image_shape: ImageShape, classes: int, norm: Norm) -> nn.Module:
    check_size(model, image_shape, 4)
    check_multiple(model, image_shape, 4)
    return FCN(image_shape[0], classes, norm)


class FCN(nn.Module):
    """3×3 convolutions with normalisation and ReLU: one at full resolution, one at half, three at a quarter of it.

    The scores are the sum of those of the three stages, as in FCN (Long et al., 2015).
    """

    def __init__(self, channels: int, classes: int, norm: Norm) -> None:
        super().__init__()

        def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, padding=1), norm(outputs), nn.ReLU())

        self.stage1 = convolution(channels, 16)
        self.stage2 = convolution(16, 32, stride=2)
        self.stage3 = nn.Sequential(convolution(32, 64, stride=2), convolution(64, 64), convolution(64, 64))
        self.heads = nn.ModuleList(nn.Conv2d(outputs, classes, 1) for outputs in (16, 32, 64))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes, height, width]` of images `[B, channels, height, width]`."""
        full = self.stage1(x)
        half = self.stage2(full)
        at_full, at_half, at_quarter = map(nn.Module.__call__, self.heads, (full, half, self.stage3(half)))
        scores: Tensor = at_full + F.interpolate(at_half, scale_factor=2) + F.interpolate(at_quarter, scale_factor=4)
        return scores
