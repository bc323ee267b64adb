"""BiSeNetV2 (Yu et al., IJCV 2021), a network for semantic segmentation, as FedDrive (Fantauzzo et al., 2022) uses it.

Two branches see the image: the detail branch is wide and shallow and ends at 1/8 of the image's size; the semantic
branch is narrow and deep and ends at 1/32. An aggregation layer lets each one gate the other. Modules have the names of
the public weights of the branches, so that these can be loaded.

Where FedDrive's network differs from the paper: heads end with a 1×1 convolution and a pixel shuffle instead of an
interpolation, and depth-wise convolutions are followed by a ReLU.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from fedflat.bench.models.dropout import Dropout

Norm = Callable[[int], nn.Module]
"""A normalisation layer for a number of channels."""

SIDES = 32
"""Height and width of images are multiples of this number."""

AUXILIARY = {"aux2": (16, 4), "aux3": (32, 8), "aux4": (64, 16), "aux5_4": (128, 32)}
"""Auxiliary heads: channels of the semantic branch after a stage, and by which factor its features are smaller."""

DROPOUT = 0.1


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias whose output is smaller by the stride."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)


class ConvNormReLU(nn.Module):
    """Convolution, normalisation, ReLU."""

    def __init__(self, norm: Norm, inputs: int, outputs: int, size: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv = conv(inputs, outputs, size, stride)
        self.bn = norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, outputs, height / stride, width / stride]` of `[B, inputs, height, width]`."""
        return torch.relu(self.bn(self.conv(x)))


class DetailBranch(nn.Module):
    """Three stages with 64, 64 and 128 channels, each of half the size of the one before."""

    def __init__(self, norm: Norm, channels: int) -> None:
        super().__init__()

        def stage(inputs: int, outputs: int, layers: int) -> nn.Sequential:
            first = ConvNormReLU(norm, inputs, outputs, stride=2)
            return nn.Sequential(first, *(ConvNormReLU(norm, outputs, outputs) for _ in range(layers - 1)))

        self.S1, self.S2, self.S3 = stage(channels, 64, 2), stage(64, 64, 3), stage(64, 128, 3)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, 128, height / 8, width / 8]` of images."""
        return cast(Tensor, self.S3(self.S2(self.S1(x))))


class Stem(nn.Module):
    """A convolution, then convolutions and a max-pool side by side; 16 channels, a quarter of the size."""

    def __init__(self, norm: Norm, channels: int) -> None:
        super().__init__()
        self.conv = ConvNormReLU(norm, channels, 16, stride=2)
        self.left = nn.Sequential(ConvNormReLU(norm, 16, 8, size=1), ConvNormReLU(norm, 8, 16, stride=2))
        self.right = nn.MaxPool2d(3, stride=2, padding=1)
        self.fuse = ConvNormReLU(norm, 32, 16)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, 16, height / 4, width / 4]` of images."""
        x = self.conv(x)
        return cast(Tensor, self.fuse(torch.cat([self.left(x), self.right(x)], dim=1)))


class GatherExpand(nn.Module):
    """A 3×3 convolution, a depth-wise one that expands channels sixfold, and a 1×1 one; plus the input."""

    def __init__(self, norm: Norm, channels: int) -> None:
        super().__init__()
        wide = 6 * channels
        self.conv1 = ConvNormReLU(norm, channels, channels)
        self.dwconv = nn.Sequential(conv(channels, wide, groups=channels), norm(wide), nn.ReLU())
        self.conv2 = nn.Sequential(conv(wide, channels, 1), norm(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Of the input's shape."""
        return torch.relu(self.conv2(self.dwconv(self.conv1(x))) + x)


class GatherExpandDown(nn.Module):
    """As `GatherExpand`, with two depth-wise convolutions, to half the size and other channels."""

    def __init__(self, norm: Norm, inputs: int, outputs: int) -> None:
        super().__init__()
        wide = 6 * inputs
        self.conv1 = ConvNormReLU(norm, inputs, inputs)
        self.dwconv1 = nn.Sequential(conv(inputs, wide, stride=2, groups=inputs), norm(wide))
        self.dwconv2 = nn.Sequential(conv(wide, wide, groups=wide), norm(wide), nn.ReLU())
        self.conv2 = nn.Sequential(conv(wide, outputs, 1), norm(outputs))
        down = [conv(inputs, inputs, stride=2, groups=inputs), norm(inputs)]
        self.shortcut = nn.Sequential(*down, conv(inputs, outputs, 1), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, outputs, height / 2, width / 2]` of `[B, inputs, height, width]`."""
        branch = self.conv2(self.dwconv2(self.dwconv1(self.conv1(x))))
        return torch.relu(branch + self.shortcut(x))


class ContextEmbedding(nn.Module):
    """Adds the mean over all pixels, after a 1×1 convolution."""

    def __init__(self, norm: Norm) -> None:
        super().__init__()
        self.bn = norm(128)
        self.conv_gap = ConvNormReLU(norm, 128, 128, size=1)
        self.conv_last = ConvNormReLU(norm, 128, 128)

    def forward(self, x: Tensor) -> Tensor:
        """Of the input's shape `[B, 128, height, width]`."""
        mean = self.conv_gap(self.bn(x.mean(dim=(2, 3), keepdim=True)))
        return cast(Tensor, self.conv_last(x + mean))


class SemanticBranch(nn.Module):
    """The stem and three stages with 32, 64 and 128 channels, each of half the size of the one before."""

    def __init__(self, norm: Norm, channels: int) -> None:
        super().__init__()

        def stage(inputs: int, outputs: int, layers: int) -> nn.Sequential:
            rest = (GatherExpand(norm, outputs) for _ in range(layers - 1))
            return nn.Sequential(GatherExpandDown(norm, inputs, outputs), *rest)

        self.S1S2 = Stem(norm, channels)
        self.S3, self.S4, self.S5_4 = stage(16, 32, 2), stage(32, 64, 2), stage(64, 128, 4)
        self.S5_5 = ContextEmbedding(norm)

    def forward(self, x: Tensor) -> list[Tensor]:
        """The features after the stem, after each stage, and after the context embedding."""
        features = []
        for stage in (self.S1S2, self.S3, self.S4, self.S5_4, self.S5_5):
            x = stage(x)
            features.append(x)
        return features


class Aggregation(nn.Module):
    """Each branch gates the other one, at both sizes; the sum is convolved."""

    def __init__(self, norm: Norm) -> None:
        super().__init__()

        def separable() -> nn.Sequential:
            return nn.Sequential(conv(128, 128, groups=128), norm(128), conv(128, 128, 1))

        self.left1, self.right2 = separable(), separable()
        self.left2 = nn.Sequential(conv(128, 128, stride=2), norm(128), nn.AvgPool2d(3, stride=2, padding=1))
        self.right1 = nn.Sequential(conv(128, 128), norm(128))
        self.up = nn.Upsample(scale_factor=4, mode="bilinear", align_corners=True)
        self.conv = nn.Sequential(conv(128, 128), norm(128), nn.ReLU())

    def forward(self, detail: Tensor, semantic: Tensor) -> Tensor:
        """Of the shape of detail `[B, 128, height, width]`; semantic `[B, 128, height / 4, width / 4]`."""
        left = self.left1(detail) * torch.sigmoid(self.up(self.right1(semantic)))
        right = self.left2(detail) * torch.sigmoid(self.right2(semantic))
        return cast(Tensor, self.conv(left + self.up(right)))


class Head(nn.Module):
    """Class scores of all pixels of features that are smaller than the image by `factor`."""

    def __init__(self, norm: Norm, inputs: int, width: int, classes: int, factor: int) -> None:
        super().__init__()
        self.conv = ConvNormReLU(norm, inputs, width)
        self.drop = Dropout(DROPOUT)
        self.conv_out = nn.Sequential(nn.Conv2d(width, classes * factor**2, 1), nn.PixelShuffle(factor))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, classes, factor · height, factor · width]` of `[B, inputs, height, width]`."""
        return cast(Tensor, self.conv_out(self.drop(self.conv(x))))


class BiSeNetV2(nn.Module):
    """Class scores of each pixel, in training also those of the auxiliary heads.

    Initialised as in FedDrive: He et al. by the number of outputs; the last normalisation of each gather-and-expand
    branch starts at zero, so that the branch adds nothing at first.
    """

    def __init__(self, channels: int, classes: int, norm: Norm, auxiliary: bool) -> None:
        super().__init__()
        self.detail = DetailBranch(norm, channels)
        self.segment = SemanticBranch(norm, channels)
        self.bga = Aggregation(norm)
        self.head = Head(norm, 128, 1024, classes, 8)
        self.auxiliary = tuple(AUXILIARY) if auxiliary else ()
        for name in self.auxiliary:
            inputs, factor = AUXILIARY[name]
            self.add_module(name, Head(norm, inputs, 128, classes, factor))
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, GatherExpand | GatherExpandDown):
                nn.init.zeros_(cast(nn.BatchNorm2d | nn.GroupNorm, module.conv2[1]).weight)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, classes, height, width]` of images `[B, channels, height, width]`.

        In training with auxiliary heads `[B, classes, heads, height, width]`, the scores of the main head first.
        """
        *features, semantic = self.segment(x)
        scores: Tensor = self.head(self.bga(self.detail(x), semantic))
        if not self.auxiliary or not self.training:
            return scores
        further = (self.get_submodule(name)(f) for name, f in zip(self.auxiliary, features, strict=True))
        return torch.stack([scores, *further], dim=2)
