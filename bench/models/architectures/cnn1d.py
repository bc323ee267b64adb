"""A small convolutional network for signals, like that of MNIST-1D's authors (Greydanus and Kobak, ICML 2024)."""

import math
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedflat.bench.input.errors import UserError
from fedflat.bench.models.base import ImageShape, NamedModel

SHORTEST = 3
"""Shorter signals leave nothing for the last convolution."""

Width = Annotated[int, Field(ge=1, le=10_000)]


class CNN1DChoice(NamedModel):
    """The network with the channels of its convolutions as an option."""

    name: Literal["cnn1d"] = "cnn1d"
    channels: tuple[Width, Width, Width] = Field(default=(16, 24, 32), description="channels of the convolutions")

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for signals (channels, length), or (length,), of at least 3 values."""
        if len(image_shape) > 2 or image_shape[-1] < SHORTEST:
            raise UserError(
                f"model {self.name} needs signals of at least {SHORTEST} values, (channels, length) or (length,), not "
                f"inputs of the shape {image_shape}"
            )
        return CNN1D(image_shape, classes, self.channels)


class CNN1D(nn.Module):
    """Three convolutions with stride 2 and ReLU (kernels of 5, 3 and 3 values), and a linear layer.

    5,218 parameters for signals of length 40 and 10 classes. The authors' network has 25 channels three times.
    """

    def __init__(self, image_shape: ImageShape, classes: int, channels: tuple[int, int, int]) -> None:
        super().__init__()
        inputs = 1 if len(image_shape) == 1 else image_shape[0]
        first, second, third = channels
        self.conv1 = nn.Conv1d(inputs, first, 5, stride=2, padding=2)
        self.conv2 = nn.Conv1d(first, second, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(second, third, 3, stride=2, padding=1)
        self.head = nn.Linear(third * math.ceil(image_shape[-1] / 8), classes)

    def features(self, x: Tensor) -> Tensor:
        """Flattened feature maps `[B, features]`."""
        x = x[:, None] if x.ndim == 2 else x
        for layer in self.feature_levels():
            x = F.relu(layer(x))
        return x.flatten(1)

    def feature_levels(self) -> list[nn.Module]:
        """FedRCL's feature levels: the outputs of the convolutions before ReLU."""
        return [self.conv1, self.conv2, self.conv3]

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes]` of signals `[B, channels, length]` or `[B, length]`."""
        scores: Tensor = self.head(self.features(x))
        return scores
