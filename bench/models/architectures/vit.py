"""The vision transformer ViT-B/32 (Dosovitskiy et al., ICLR 2021), as FedLESAM trains it on domains."""

from typing import Any, ClassVar, Literal

from torch import nn

from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.input.errors import UserError
from fedflat.bench.models.base import ImageShape, check_multiple, check_size
from fedflat.bench.models.pretrained import PretrainedModel
from fedflat.bench.models.weights import StateDict

PATCH = 32
"""Height and width of a patch."""

POSITIONS = "encoder.pos_embedding"


class ViTB32Choice(PretrainedModel):
    """torchvision's ViT-B/32 (87,505,217 parameters for 65 classes and images of 224×224 pixels).

    The last layer starts at zero. Position embeddings of weights for another size of images are interpolated.
    """

    name: Literal["vit_b_32"] = "vit_b_32"
    small: ClassVar[bool] = False
    new_parts: ClassVar[tuple[str, ...]] = ("heads.head",)

    def new(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for square images of three channels, with sides that are multiples of 32."""
        check_size(self.name, image_shape)
        check_multiple(self.name, image_shape, PATCH)
        channels, height, width = image_shape
        if channels != 3 or height != width:
            raise UserError(f"model {self.name} needs square images with 3 channels, not {channels}×{height}×{width}")
        module: nn.Module = _models().vit_b_32(image_size=height, num_classes=classes)
        return module

    def fitted(self, weights: StateDict, image_shape: ImageShape) -> StateDict:
        """The weights with position embeddings for images of this shape."""
        side, positions = image_shape[1], weights.get(POSITIONS)
        # Other shapes than [1, tokens, width] are those of another model, which load_weights reports.
        if positions is None or positions.ndim != 3 or not positions.is_floating_point():
            return weights
        tokens = positions.shape[1]
        if tokens < 2 or not positions.shape[2] or tokens == (side // PATCH) ** 2 + 1:
            return weights
        try:
            fitted: StateDict = _models().vision_transformer.interpolate_embeddings(side, PATCH, dict(weights))
        except ValueError as error:  # no square number of patches
            raise UserError(f"the weights of {self.name} have unusable position embeddings: {error}") from None
        return fitted


def _models() -> Any:
    return import_torchvision().models
