"""A small convolutional network with GroupNorm for segmentation of small images: 27,499 parameters with 11 classes."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.models.base import ImageShape, NamedModel, check_multiple, check_size


class FCNGNChoice(NamedModel):
    """The default for segmentation of small images. It has no options."""

    name: Literal["fcn_gn"] = "fcn_gn"
    label_maps: ClassVar[bool | None] = True

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images with even sides of at least 4 pixels."""
        check_size(self.name, image_shape, 4)
        check_multiple(self.name, image_shape, 2)
        return FCNGN(image_shape[0], classes)


class FCNGN(nn.Module):
    """3×3 convolutions with GroupNorm(4) and ReLU: one at full resolution, three at half, one on both together."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.fine = _convolution(channels, 16)
        self.coarse = nn.Sequential(_convolution(16, 32, stride=2), _convolution(32, 32), _convolution(32, 32))
        self.both = _convolution(16 + 8, 16)
        self.head = nn.Conv2d(16, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes, height, width]` of images `[B, channels, height, width]`."""
        fine = self.fine(x)
        enlarged = F.pixel_shuffle(self.coarse(fine), 2)  # 8 channels at full resolution
        scores: Tensor = self.head(self.both(torch.cat([fine, enlarged], dim=1)))
        return scores


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.GroupNorm(4, outputs), nn.ReLU())
