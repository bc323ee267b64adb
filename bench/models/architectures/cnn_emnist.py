"""The convolutional network for EMNIST of Reddi et al., ICLR 2021, also used by Qu et al. 2022."""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedflat.bench.models.base import ImageShape, NamedModel, check_size
from fedflat.bench.models.dropout import Dropout


class CNNEMNISTChoice(NamedModel):
    """The network with its two dropout rates as options."""

    name: Literal["cnn_emnist"] = "cnn_emnist"
    small: ClassVar[bool] = False
    dropout_features: float = Field(default=0.25, ge=0, lt=1, description="dropout rate of the pooled feature maps")
    dropout_hidden: float = Field(default=0.5, ge=0, lt=1, description="dropout rate of the hidden layer")

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images of at least 6×6 pixels."""
        check_size(self.name, image_shape, 6)
        return CNNEMNIST(image_shape, classes, self.dropout_features, self.dropout_hidden)


class CNNEMNIST(nn.Module):
    """Two 3×3 convolutions (32 and 64 channels, no padding), max-pool, a hidden layer of 128; dropout after both.

    1,206,590 parameters for 1×28×28 images and 62 classes.
    """

    def __init__(
        self, image_shape: ImageShape, classes: int, dropout_features: float = 0.25, dropout_hidden: float = 0.5
    ) -> None:
        super().__init__()
        channels, *sides = image_shape
        height, width = ((side - 4) // 2 for side in sides)
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = Dropout(dropout_features)
        self.fc = nn.Linear(64 * height * width, 128)
        self.dropout2 = Dropout(dropout_hidden)
        self.head = nn.Linear(128, classes)

    def feature_levels(self) -> list[nn.Module]:
        """FedRCL's feature levels: the outputs of all hidden layers before ReLU."""
        return [self.conv1, self.conv2, self.fc]

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes]` of images `[B, channels, height, width]`."""
        x = F.relu(self.conv1(x))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = self.dropout1(x).flatten(1)
        x = self.dropout2(F.relu(self.fc(x)))
        scores: Tensor = self.head(x)
        return scores
