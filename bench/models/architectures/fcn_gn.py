"""A small convolutional network with GroupNorm for segmentation of small images: 99,185 parameters with 11 classes."""

from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from bench.models.base import ImageShape, NamedModel, check_multiple, check_size


class FCNGNChoice(NamedModel):
    """The default for segmentation of small images. It has no options."""

    name: Literal["fcn_gn"] = "fcn_gn"
    label_maps: ClassVar[bool | None] = True

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images with sides that are multiples of 4."""
        check_size(self.name, image_shape, 4)
        check_multiple(self.name, image_shape, 4)
        return FCNGN(image_shape[0], classes)


class FCNGN(nn.Module):
    """3×3 convolutions with GroupNorm(4) and ReLU: one at full resolution, one at half, three at a quarter of it.

    The scores are the sum of those of the three stages, as in FCN (Long et al., 2015).
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stage1 = _convolution(channels, 16)
        self.stage2 = _convolution(16, 32, stride=2)
        self.stage3 = nn.Sequential(_convolution(32, 64, stride=2), _convolution(64, 64), _convolution(64, 64))
        self.heads = nn.ModuleList(nn.Conv2d(outputs, classes, 1) for outputs in (16, 32, 64))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes, height, width]` of images `[B, channels, height, width]`."""
        full = self.stage1(x)
        half = self.stage2(full)
        at_full, at_half, at_quarter = map(nn.Module.__call__, self.heads, (full, half, self.stage3(half)))
        scores: Tensor = at_full + F.interpolate(at_half, scale_factor=2) + F.interpolate(at_quarter, scale_factor=4)
        return scores


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.GroupNorm(4, outputs), nn.ReLU())
