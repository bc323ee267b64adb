"""A model's parameters as one flat vector."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class FlatLayout:
    """The position of each named tensor of the model in the flat vector, in the order of registration."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> list[int]:
        """Number of coordinates of each tensor."""
        return [int(torch.Size(shape).numel()) for shape in self.shapes]

    @property
    def total(self) -> int:
        """P, the length of the flat vector."""
        return sum(self.sizes)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector `[P]` by name, each in its tensor's shape."""
        parts = flat.split(self.sizes)
        return {n: p.view(s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}
