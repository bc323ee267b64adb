"""Small convolutional networks without normalisation: three convolutions with stride 2, and a linear layer.

That for signals is like that of MNIST-1D's authors (Greydanus and Kobak, ICML 2024).
"""

import math
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedflat.bench.input.errors import UserError
from fedflat.bench.models.base import ImageShape, NamedModel, check_size

SHORTEST = 3
"""Shorter signals leave nothing for the last convolution."""

Width = Annotated[int, Field(ge=1, le=10_000)]
Channels = tuple[Width, Width, Width]


class CNN1DChoice(NamedModel):
    """The network for signals, with the channels of its convolutions as an option."""

    name: Literal["cnn1d"] = "cnn1d"
    channels: Channels = Field(default=(16, 24, 32), description="channels of the convolutions")

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for signals (channels, length), or (length,), of at least 3 values.

        Kernels have 5, 3 and 3 values: 5,218 parameters for signals of length 40 and 10 classes. The authors' network
        has 25 channels three times.
        """
        if len(image_shape) > 2 or image_shape[-1] < SHORTEST:
            raise UserError(
                f"model {self.name} needs signals of at least {SHORTEST} values, (channels, length) or (length,), not "
                f"inputs of the shape {image_shape}"
            )
        shape = (1, *image_shape) if len(image_shape) == 1 else image_shape
        return StridedCNN(nn.Conv1d, shape, classes, self.channels, (5, 3, 3))


class CNN2DChoice(NamedModel):
    """The network for images, with the channels of its convolutions as an option."""

    name: Literal["cnn2d"] = "cnn2d"
    channels: Channels = Field(default=(24, 48, 64), description="channels of the convolutions")

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images (channels, height, width), with kernels of 3×3: 49,050 parameters for CIFAR-10."""
        check_size(self.name, image_shape)
        return StridedCNN(nn.Conv2d, image_shape, classes, self.channels, (3, 3, 3))


class StridedCNN(nn.Module):
    """Three convolutions with stride 2 and ReLU, and a linear layer. `shape`: of an input, channels first."""

    def __init__(
        self,
        convolution: type[nn.Conv1d | nn.Conv2d],
        shape: ImageShape,
        classes: int,
        channels: tuple[int, int, int],
        kernels: tuple[int, int, int],
    ) -> None:
        super().__init__()
        widths = (shape[0], *channels)
        self.conv1, self.conv2, self.conv3 = (
            convolution(inputs, outputs, kernel, stride=2, padding=kernel // 2)
            for inputs, outputs, kernel in zip(widths, channels, kernels, strict=False)
        )
        self.head = nn.Linear(channels[-1] * math.prod(math.ceil(size / 8) for size in shape[1:]), classes)
        self.dimensions = len(shape) + 1

    def features(self, x: Tensor) -> Tensor:
        """Flattened feature maps `[B, features]`."""
        x = x[:, None] if x.ndim < self.dimensions else x
        for layer in self.feature_levels():
            x = F.relu(layer(x))
        return x.flatten(1)

    def feature_levels(self) -> list[nn.Module]:
        """FedRCL's feature levels: the outputs of the convolutions before ReLU."""
        return [self.conv1, self.conv2, self.conv3]

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes]` of signals `[B, channels, length]` or `[B, length]`, or of images."""
        scores: Tensor = self.head(self.features(x))
        return scores
