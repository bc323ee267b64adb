"""Models that may start from trained weights, and train only some of their parts."""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from fedflat.bench.data.root import data_root
from fedflat.bench.input.errors import UserError, first_few
from fedflat.bench.models.base import ImageShape, NamedModel
from fedflat.bench.models.frozen_parts import freeze
from fedflat.bench.models.weights import (
    PublishedWeights,
    StateDict,
    Weights,
    WeightsFile,
    is_in,
    kept_tensors,
    load_weights,
    read_weights,
)

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
            file, weights = self._read(self.weights, image_shape)
            kept = load_weights(module, weights, self.new_parts, f"the weights '{file}'")
            self._check_frozen(kept, file)
            log.info("%s starts from '%s'; random: %s", self.registered_name(), file, ", ".join(kept) or "nothing")
        freeze(module, self.frozen)
        return module

    def check(self, image_shape: ImageShape, classes: int) -> None:
        """See `ModelChoice`. The weights are read, but not loaded."""
        module = self._on_meta(image_shape, classes)
        if self.weights is not None:
            file, weights = self._read(self.weights, image_shape)
            self._check_frozen(kept_tensors(module, weights, self.new_parts, f"the weights '{file}'"), file)
        freeze(module, self.frozen)

    def _on_meta(self, image_shape: ImageShape, classes: int) -> nn.Module:
        with torch.device("meta"):
            return self.new(image_shape, classes)

    def _check_frozen(self, kept: Sequence[str], file: Path) -> None:
        """A `UserError` if a frozen part keeps random values, from which nothing can be learnt."""
        if random := [name for name in kept if is_in(name, self.frozen)]:
            raise UserError(
                f"frozen = {', '.join(self.frozen)}, but the weights '{file}' have nothing that fits "
                f"{first_few(random)}, which would stay random (allowed: parts that the weights have)"
            )

    def _read(self, weights: WeightsFile | PublishedWeights, image_shape: ImageShape) -> tuple[Path, StateDict]:
        """The file, and its tensors as they are used for images of this shape."""
        file = weights.path(self.registered_name(), data_root())
        return file, self.fitted(read_weights(file), image_shape)

    def fitted(self, weights: StateDict, image_shape: ImageShape) -> StateDict:
        """The weights as they are used for images of this shape."""
        return weights
