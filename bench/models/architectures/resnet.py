"""ResNet-18 as used by the papers of this field: with GroupNorm, or without normalisation."""

from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from fedflat.bench.models.base import ImageShape, NamedModel, check_size

Stem = Literal["imagenet", "cifar"]
"""The first layers: 7×7 with stride 2 and a max-pool; or 3×3 with stride 1 and no pool."""


class ResNet18GNChoice(NamedModel):
    """torchvision's ResNet-18 with GroupNorm in place of every BatchNorm, also in the short cuts.

    The default stem is ImageNet's, with which the last stage of a 32×32 image has one pixel. The released codes of
    FedSMOO and FedLESAM use it (11,181,642 parameters for 10 classes, 11,227,812 for 100, in 62 tensors).
    """

    name: Literal["resnet18_gn"] = "resnet18_gn"
    small: ClassVar[bool] = False
    stem: Stem = Field(default="imagenet", description="imagenet (7×7, stride 2, max-pool) or cifar (3×3, stride 1)")
    groups: Literal[1, 2, 4, 8, 16, 32, 64] = Field(default=2, description="groups of every GroupNorm")

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images of any size."""
        check_size(self.name, image_shape)
        from fedflat.bench.models.blocks.residual import ResNet18  # noqa: PLC0415 - torchvision takes seconds to import

        return ResNet18(image_shape[0], classes, self.stem, lambda channels: nn.GroupNorm(self.groups, channels))


class ResNet18NoNormChoice(NamedModel):
    """ResNet-18 with a 3×3 stem and no normalisation, from FedGF's appendix (11,210,532 parameters for 100 classes).

    The last stage is averaged over all its pixels, as in the appendix: 4×4 pixels for a 32×32 image.
    """

    name: Literal["resnet18_nonorm"] = "resnet18_nonorm"
    small: ClassVar[bool] = False

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images of any size."""
        check_size(self.name, image_shape)
        from fedflat.bench.models.blocks.residual import without_norm  # noqa: PLC0415 - torchvision takes seconds to import

        return without_norm(image_shape[0], classes)
