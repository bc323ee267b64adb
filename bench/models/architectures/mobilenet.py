"""MobileNetV2 with GroupNorm, as Caldarola et al. and Hsu et al. (ECCV 2020) train it on landmarks."""

from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from fedflat.bench.models.base import ImageShape, check_size
from fedflat.bench.models.dropout import Dropout
from fedflat.bench.models.pretrained import PretrainedModel


class MobileNetV2GNChoice(PretrainedModel):
    """torchvision's MobileNetV2 of width 1 with GroupNorm (4,821,740 parameters for 2,028 classes)."""

    name: Literal["mobilenet_v2_gn"] = "mobilenet_v2_gn"
    small: ClassVar[bool] = False
    new_parts: ClassVar[tuple[str, ...]] = ("classifier.1",)
    groups: Literal[1, 2, 4, 8] = Field(default=8, description="groups of every GroupNorm")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout rate before the last layer")

    def new(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images of any size."""
        check_size(self.name, image_shape)
        from fedflat.bench.models.blocks.inverted_residual import MobileNetV2  # noqa: PLC0415 - torchvision takes seconds to import

        network = MobileNetV2(image_shape[0], classes, lambda channels: nn.GroupNorm(self.groups, channels))
        network.classifier[0] = Dropout(self.dropout)
        return network
