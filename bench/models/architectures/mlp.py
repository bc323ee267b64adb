"""A multilayer perceptron for inputs of any shape."""

import itertools
import math
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedflat.bench.models.base import ImageShape, NamedModel

Width = Annotated[int, Field(ge=1, le=100_000)]


class MLPChoice(NamedModel):
    """The network with the widths of its hidden layers as an option."""

    name: Literal["mlp"] = "mlp"
    hidden: tuple[Width, ...] = Field(
        default=(100, 100), max_length=20, description="widths of the hidden layers; []: logistic regression"
    )

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for inputs of any shape."""
        return MLP(image_shape, classes, self.hidden)


class MLP(nn.Module):
    """Linear layers with ReLU in between, on the flattened input.

    With two hidden layers of 100, it is the MLP of MNIST-1D's authors: 15,210 parameters for signals of length 40.
    """

    def __init__(self, image_shape: ImageShape, classes: int, hidden: tuple[int, ...] = (100, 100)) -> None:
        super().__init__()
        widths = (math.prod(image_shape), *hidden)
        self.hidden = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(widths))
        self.head = nn.Linear(widths[-1], classes)

    def feature_levels(self) -> list[nn.Module]:
        """FedRCL's feature levels: the outputs of all hidden layers before ReLU."""
        return list(self.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes]` of inputs `[B, ...]`."""
        x = x.flatten(1)
        for layer in self.hidden:
            x = F.relu(layer(x))
        scores: Tensor = self.head(x)
        return scores
