"""LeNet, the convolutional network of FL-Simulator and FedLESAM, and the CNN of Hsu, Caldarola and FedGF."""

from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from fedflat.bench.models.base import ImageShape, NamedModel, check_size


class LeNetChoice(NamedModel):
    """LeNet has no options."""

    name: Literal["lenet"] = "lenet"
    small: ClassVar[bool] = False

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images of at least 16×16 pixels."""
        check_size(self.name, image_shape, 16)
        return LeNet(image_shape, classes)


class LeNet(nn.Module):
    """Two 5×5 convolutions (64 channels, no padding), each with ReLU and 2×2 max-pool; hidden layers of 384 and 192.

    797,962 parameters for 3×32×32 images and 10 classes, 815,332 for 100. Some released codes apply ReLU before
    pooling, some after it. Both give the same values; ReLU after pooling is faster.
    """

    def __init__(self, image_shape: ImageShape, classes: int) -> None:
        super().__init__()
        channels, *sides = image_shape
        height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
        self.conv1 = nn.Conv2d(channels, 64, 5)
        self.conv2 = nn.Conv2d(64, 64, 5)
        self.fc1 = nn.Linear(64 * height * width, 384)
        self.fc2 = nn.Linear(384, 192)
        self.head = nn.Linear(192, classes)

    def feature_levels(self) -> list[nn.Module]:
        """FedRCL's feature levels: the outputs of all hidden layers before ReLU and pooling."""
        return [self.conv1, self.conv2, self.fc1, self.fc2]

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes]` of images `[B, channels, height, width]`."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        x = F.relu(self.fc2(x))
        scores: Tensor = self.head(x)
        return scores
