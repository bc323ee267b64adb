"""BiSeNetV2 for semantic segmentation, with BatchNorm, SiloBN or GroupNorm."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from torch import nn

from fedflat.bench.input.errors import UserError
from fedflat.bench.models.base import ImageShape, check_multiple, check_size
from fedflat.bench.models.blocks.bilateral import SIDES, BiSeNetV2
from fedflat.bench.models.buffer_mode import BufferMode, GivenMode
from fedflat.bench.models.pretrained import PretrainedModel


class BiSeNetV2Choice(PretrainedModel):
    """BiSeNetV2 as FedDrive uses it (8,196,416 parameters for 19 classes, 3,610,864 of them in auxiliary heads).

    SiloBN (Andreux et al., 2020) is `buffers: local`: each client keeps its own statistics of all 58 layers of
    BatchNorm, and the scales and shifts are averaged. FedDrive's code keeps those of the 28 layers that are called
    `bn`, `buffers: {local: ["*.bn.*"]}`, and averages the statistics of the others.
    """

    name: Literal["bisenet_v2"] = "bisenet_v2"
    small: ClassVar[bool] = False
    label_maps: ClassVar[bool | None] = True
    new_parts: ClassVar[tuple[str, ...]] = ("bga", "head", "aux2", "aux3", "aux4", "aux5_4")
    norm: Literal["batch", "group"] = Field(default="batch", description="BatchNorm or GroupNorm")
    groups: Literal[1, 2, 4, 8] = Field(default=8, description="groups of every GroupNorm")
    buffers: GivenMode = Field(
        default="average",
        description="statistics of BatchNorm: average (sent and averaged like parameters), local (SiloBN: each "
        "client keeps its own), or {local: [PATTERN, ...]} (those whose names match)",
    )
    auxiliary: bool = Field(default=True, description="train auxiliary heads at four stages")

    @model_validator(mode="after")
    def _buffers_exist(self) -> "BiSeNetV2Choice":
        if self.norm == "group" and self.buffers != "average":
            raise UserError("buffers: local needs statistics of BatchNorm (allowed: norm: batch, or no buffers)")
        return self

    @property
    def buffer_mode(self) -> BufferMode | None:
        """The field `buffers`; GroupNorm has none."""
        return self.buffers if self.norm == "batch" else None

    def new(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images with sides that are multiples of 32."""
        check_size(self.name, image_shape)
        check_multiple(self.name, image_shape, SIDES)
        norm = nn.BatchNorm2d if self.norm == "batch" else lambda channels: nn.GroupNorm(self.groups, channels)
        return BiSeNetV2(image_shape[0], classes, norm, self.auxiliary)
