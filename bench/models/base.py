"""The base of model choices, which build a module for the image shape and number of classes of a data set."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from bench.input.errors import UserError
from bench.input.frozen import Frozen

ImageShape = tuple[int, int, int]
"""(channels, height, width)."""


class ModelChoice(Frozen, ABC):
    """A model and its options."""

    small: ClassVar[bool] = True
    """Whether one CPU thread is best: on busy cores, two threads can make tiny operations a hundred times slower.

    User-defined models count as small, whatever their size: parallel processes use the cores nearly as well as threads.
    """

    def threads(self, cores: int) -> int:
        """Number of CPU threads, at most `cores`, of a process that trains or analyses this model."""
        return 1 if self.small else cores

    @property
    @abstractmethod
    def label(self) -> str:
        """The name in tables, with the options that are not the default."""

    @abstractmethod
    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """The module, with weights drawn from torch's global generator. Raises `UserError` if the images do not fit."""


class NamedModel(ModelChoice):
    """A model that FedFlat knows by its `name`, a field with one allowed value."""

    @property
    def label(self) -> str:
        """For example resnet18_gn, or resnet18_gn(stem=cifar)."""
        options = [f"{key}={value}" for key, value in self.model_dump(exclude={"name"}, exclude_defaults=True).items()]
        name: str = type(self).model_fields["name"].default
        return f"{name}({', '.join(options)})" if options else name


def check_size(model: str, image_shape: ImageShape, smallest: int) -> None:
    """Raises `UserError` if the images are too small for the model."""
    _, height, width = image_shape
    if min(height, width) < smallest:
        raise UserError(f"model {model} needs images of at least {smallest}×{smallest} pixels, not {height}×{width}")
