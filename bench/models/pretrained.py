"""Models that may start from trained weights, and train only some of their parts."""

import logging
from abc import abstractmethod
from typing import ClassVar

from pydantic import Field
from torch import nn

from bench.data.root import data_root
from bench.models.base import ImageShape, NamedModel
from bench.models.frozen_parts import freeze
from bench.models.weights import StateDict, Weights, load_weights, read_weights

log = logging.getLogger("fedflat.weights")


class PretrainedModel(NamedModel):
    """A model with optional `weights` from which it starts, and parts that are `frozen`."""

    new_parts: ClassVar[tuple[str, ...]]
    """Parts that keep their initial values if the weights lack them or have other shapes, such as the last layer."""

    weights: Weights | None = Field(
        default=None,
        description="trained weights from which the model starts: imagenet (published by torchvision), or the path of "
        "a file of tensors by name (safetensors, or torch.save of a state dictionary); null: random ones",
    )
    frozen: tuple[str, ...] = Field(
        default=(),
        description="parts that are neither trained nor sent, by the names of their modules; their buffers stay, too",
    )

    @property
    def label(self) -> str:
        """For example vit_b_32(weights=imagenet, frozen=encoder)."""
        given = self.model_dump(exclude={"name", "weights", "frozen"}, exclude_defaults=True)
        if self.weights is not None:
            given["weights"] = self.weights.label
        if self.frozen:
            given["frozen"] = "+".join(self.frozen)
        return self.labelled(given)

    @abstractmethod
    def new(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """The module with weights drawn from torch's global generator. Raises `UserError` if the inputs do not fit."""

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """The module with its initial weights. Frozen parameters require no gradients."""
        module = self.new(image_shape, classes)
        if self.weights is not None:
            file = self.weights.path(self.registered_name(), data_root())
            weights = self.fitted(read_weights(file), image_shape)
            kept = load_weights(module, weights, self.new_parts, f"the weights '{file}'")
            log.info("%s starts from '%s'; random: %s", self.registered_name(), file, ", ".join(kept) or "nothing")
        freeze(module, self.frozen)
        return module

    def fitted(self, weights: StateDict, image_shape: ImageShape) -> StateDict:
        """The weights as they are used for images of this shape."""
        return weights
