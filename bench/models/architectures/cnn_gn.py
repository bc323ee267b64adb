"""A small convolutional network with GroupNorm, for small images (1,946 parameters on 8×8 digits)."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from fedflat.bench.models.base import ImageShape, NamedModel, check_size


class CNNGNChoice(NamedModel):
    """The default for small images. It has no options."""

    name: Literal["cnn_gn"] = "cnn_gn"

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images of at least 3×3 pixels."""
        check_size(self.name, image_shape, 3)
        return CNNGN(image_shape, classes)


class CNNGN(nn.Module):
    """Two 3×3 convolutions (8 and 16 channels, the second with stride 2), GroupNorm(2), ReLU, pool, linear layer."""

    def __init__(self, image_shape: ImageShape, classes: int) -> None:
        super().__init__()
        channels, *sides = image_shape
        height, width = ((side + 1) // 2 // 2 for side in sides)
        self.conv1 = nn.Conv2d(channels, 8, 3, padding=1)
        self.norm1 = nn.GroupNorm(2, 8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm2 = nn.GroupNorm(2, 16)
        self.head = nn.Linear(16 * height * width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Flattened feature maps `[B, features]`."""
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return F.max_pool2d(x, 2).flatten(1)

    def feature_levels(self) -> list[nn.Module]:
        """FedRCL's feature levels: both normalised feature maps, before ReLU."""
        return [self.norm1, self.norm2]

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes]` of images `[B, channels, height, width]`."""
        scores: Tensor = self.head(self.features(x))
        return scores
