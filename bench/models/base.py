"""What a configuration's `model` is: a choice that builds a network for the data's images and classes."""

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
    """Whether one CPU thread serves it best: two can make its tiny operations a hundred times slower on busy cores.

    A user's own counts as small: processes side by side use the cores nearly as well as threads, for large ones too.
    """

    def threads(self, cores: int) -> int:
        """CPU threads of a process that trains or analyses it, which may have up to `cores`."""
        return 1 if self.small else cores

    @property
    @abstractmethod
    def label(self) -> str:
        """Its name in tables, with the options that are not the default."""

    @abstractmethod
    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """The network, its weights drawn from torch's global generator; a `UserError` if the images do not fit."""


class NamedModel(ModelChoice):
    """A model of the registry; its field `name` has one allowed value."""

    @property
    def label(self) -> str:
        """For example resnet18_gn, or resnet18_gn(stem=cifar)."""
        options = [f"{key}={value}" for key, value in self.model_dump(exclude={"name"}, exclude_defaults=True).items()]
        name: str = type(self).model_fields["name"].default
        return f"{name}({', '.join(options)})" if options else name


def check_size(model: str, image_shape: ImageShape, smallest: int) -> None:
    """A `UserError` if the images are smaller than the model can take."""
    _, height, width = image_shape
    if min(height, width) < smallest:
        raise UserError(f"model {model} needs images of at least {smallest}×{smallest} pixels, not {height}×{width}")
