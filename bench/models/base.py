"""The base of model choices, which build a module for the shape of an input and the number of classes of a data set."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from fedflat.bench.data.tokens import TokenShape
from fedflat.bench.host.memory import available_memory
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.models.buffer_mode import BufferMode, GivenModeOrNone

VECTORS = 3
"""The fewest vectors of all parameters in training: the weights, the model that is broadcast, and a gradient."""

ImageShape = tuple[int, ...]
"""The shape of one input: (channels, height, width) of images, (channels, length) of signals, (features,) of tables; a
`TokenShape` of token ids."""


class ModelChoice(Frozen, ABC):
    """A model and its options."""

    small: ClassVar[bool] = True
    """Whether one CPU thread is best: on busy cores, two threads can make tiny operations a hundred times slower.

    User-defined models count as small, whatever their size: parallel processes use the cores nearly as well as threads.
    """

    label_maps: ClassVar[bool | None] = False
    """Whether its scores are for each pixel, for segmentation, and not for each image; None: its function decides."""

    tokens: ClassVar[bool | None] = False
    """Whether its inputs are token ids, and not other numbers; None: its function decides."""

    def threads(self, cores: int) -> int:
        """Number of CPU threads, at most `cores`, of a process that trains or analyses this model."""
        return 1 if self.small else cores

    @property
    def buffer_mode(self) -> BufferMode | None:
        """What happens to the model's buffers; None: it must not have any."""
        return None

    @property
    @abstractmethod
    def label(self) -> str:
        """The name in tables, with the options that are not the default."""

    def check_kind(self, image_shape: ImageShape) -> None:
        """Raises `UserError` if the inputs are token ids, but the model needs other numbers, or vice versa."""
        are_tokens = isinstance(image_shape, TokenShape)
        if self.tokens not in (None, are_tokens):
            needed = "token ids, as the model lstm" if are_tokens else "no token ids"
            raise UserError(f"model {self.label} does not suit the inputs (allowed: one for {needed})")

    @abstractmethod
    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """The module, with weights drawn from torch's global generator. Raises `UserError` if the inputs do not fit."""

    def check(self, image_shape: ImageShape, classes: int) -> None:
        """Raises `UserError` if `build` would. The weights of a named model take no memory."""
        self.build(image_shape, classes)

    def check_memory(self, image_shape: ImageShape, classes: int) -> None:
        """Raises `UserError` if the weights need more memory than is free; of a named model only."""


class NamedModel(ModelChoice):
    """A model that FedFlat knows by its `name`, a field with one allowed value."""

    @property
    def label(self) -> str:
        """For example resnet18_gn, or resnet18_gn(stem=cifar)."""
        return self.labelled(self.model_dump(exclude={"name"}, exclude_defaults=True))

    def check(self, image_shape: ImageShape, classes: int) -> None:
        """See `ModelChoice`."""
        self._on_meta(image_shape, classes)

    def check_memory(self, image_shape: ImageShape, classes: int) -> None:
        """See `ModelChoice`."""
        parameters = sum(parameter.numel() for parameter in self._on_meta(image_shape, classes).parameters())
        needed, free = 4 * VECTORS * parameters, available_memory()
        if needed > free:
            raise UserError(
                f"model {self.label} has {parameters:,} parameters: training needs at least {needed / 1e9:,.1f} GB of "
                f"memory, and {free / 1e9:,.1f} GB are free (allowed: a smaller model, or a machine with more memory)"
            )

    def _on_meta(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """The module without weights. Torch takes seconds to import what a forward pass on this device needs, so that
        models compute sizes by arithmetic."""
        with torch.device("meta"):
            return self.build(image_shape, classes)

    @classmethod
    def registered_name(cls) -> str:
        """The allowed value of `name`."""
        name: str = cls.model_fields["name"].default
        return name

    @classmethod
    def labelled(cls, options: Mapping[str, object]) -> str:
        """The name with these options."""
        listed = ", ".join(f"{key}={_in_words(value)}" for key, value in options.items())
        return f"{cls.registered_name()}({listed})" if listed else cls.registered_name()


class MayHaveStatistics(NamedModel):
    """A model whose options decide whether it has BatchNorm."""

    small: ClassVar[bool] = False
    buffers: GivenModeOrNone = Field(
        default=None,
        description="statistics of BatchNorm: average (sent and averaged like parameters), local (each client keeps "
        "its own), or {local: [PATTERN, ...]}; null: average, if the model has any",
    )

    @property
    @abstractmethod
    def has_statistics(self) -> bool:
        """Whether the model has buffers."""

    @property
    def buffer_mode(self) -> BufferMode | None:
        """The field `buffers`, or its default."""
        return self.buffers or ("average" if self.has_statistics else None)

    def check_buffers(self) -> None:
        """A `UserError` if `buffers` are given for a model without any."""
        if self.buffers is not None and not self.has_statistics:
            raise UserError(f"model {self.label} has no buffers (allowed: buffers: null)")


def _in_words(value: object) -> str:
    """A value of an option; that of a mapping without brackets: local *.bn.*"""
    if not isinstance(value, Mapping):
        return str(value)
    return " ".join(f"{key} {' '.join(map(str, listed))}" for key, listed in value.items())


def check_size(model: str, image_shape: ImageShape, smallest: int = 1) -> None:
    """Raises `UserError` if the inputs are no images, or too small for the model."""
    if len(image_shape) != 3:
        raise UserError(
            f"model {model} needs images, (channels, height, width), not inputs of the shape {image_shape} "
            "(for grey images without channels: x[:, None])"
        )
    _, height, width = image_shape
    if min(height, width) < smallest:
        raise UserError(f"model {model} needs images of at least {smallest}×{smallest} pixels, not {height}×{width}")


def check_multiple(model: str, image_shape: ImageShape, factor: int) -> None:
    """Raises `UserError` if height or width is no multiple of `factor`; checked after `check_size`."""
    _, height, width = image_shape
    if height % factor or width % factor:
        raise UserError(f"model {model} needs height and width that are multiples of {factor}, not {height}×{width}")
