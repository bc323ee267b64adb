"""Directions in parameter space: random ones, and those of a plane through three models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import norm, unit
from fedflat.bench.numerics.flat import FlatLayout

Biases = Literal["zero", "normalised"]
FLAT = 1e-6
"""Three models count as collinear if the third's distance from the line through the others, divided by its distance
from the first, is at most this."""


def gaussian_directions(w: Tensor, draws: int, stream: torch.Generator) -> Iterator[Tensor]:
    """`draws` standard normal vectors `[P]`, one at a time, on the device and in the number format of w.

    The stream is not advanced: equal streams give equal directions for every model of this size. The draws are in
    float32 on the CPU, so that neither the device nor the number format changes them.
    """
    if draws < 1:
        raise UserError(f"{draws} random directions (allowed: 1 or more)")
    generator = stream.clone_state()
    for _ in range(draws):
        yield torch.randn(w.numel(), generator=generator, dtype=torch.float32).to(w)


def filter_normalised_directions(
    layout: FlatLayout, w: Tensor, stream: torch.Generator, *, biases: Biases = "zero", orthogonal: bool = False
) -> tuple[Tensor, Tensor]:
    """Two filter-normalised random directions `[P]` (Li et al. 2018, sec. 4).

    The directions are Gaussian; each filter (first index of a convolution's or a linear layer's weight) is scaled to
    the norm of the same filter of w. Directions of tensors with at most one dimension (biases, normalisation
    parameters) are `zero` (an option of that paper's released code) or `normalised`, each tensor as one filter. With
    `orthogonal`, each filter of the second direction is made orthogonal to the same filter of the first one before it
    is scaled (Qu et al. 2022, sec. 5.2, use orthogonal directions); a filter that has only one number is then zero in
    the second direction.

    The stream is not advanced: equal streams give every model the same Gaussian draws, so that the directions of
    different models differ only in the norms of their filters.
    """
    first, second = gaussian_directions(w, 2, stream)
    for d1, d2, weight in zip(*(layout.split(flat).values() for flat in (first, second, w)), strict=True):
        if weight.dim() <= 1 and biases == "zero":
            d1.zero_()
            d2.zero_()
            continue
        f1, f2, filters = (_filters(part) for part in (d1, d2, weight))
        if orthogonal:
            f2 -= (unit(f1) * f2).sum(1, keepdim=True) * unit(f1) if f2.shape[1] > 1 else f2.clone()
        for f in (f1, f2):
            f.copy_(unit(f) * norm(filters))
    return first, second


def _filters(tensor: Tensor) -> Tensor:
    """A view `[filters, numbers per filter]`."""
    return tensor.flatten(1) if tensor.dim() > 1 else tensor.view(1, -1)


@dataclass(frozen=True)
class Family:
    """The models w + a d1 (+ b d2) on a line (plane) in parameter space; all vectors are `[P]`."""

    w: Tensor
    directions: tuple[Tensor, ...]

    def at(self, point: Sequence[float]) -> Tensor:
        """The model `[P]` at a point's coordinates, one for each direction; exactly w where all are zero."""
        model = self.w.clone()
        for coordinate, direction in zip(point, self.directions, strict=True):
            model.add_(direction, alpha=coordinate)
        return model


def plane_through(first: Tensor, second: Tensor, third: Tensor) -> tuple[Family, list[tuple[float, float]]]:
    """The plane through three models `[P]`, and the coordinates of these models in it.

    The origin is the first model t1; u = t2 − t1, v = (t3 − t1) minus its projection on u, both normalised (Caldarola
    et al. 2022, appendix C.3), so that distances in the plane are Euclidean. Computed in float64, orthonormal to 1e-12.
    A `UserError` if the three models lie on a line.
    """
    start = first.double()
    u, v = second.double() - start, third.double() - start
    x2, distance = float(norm(u)), float(norm(v))
    if x2 == 0 or distance == 0:
        raise UserError("two of the three models are equal, so they do not define a plane")
    u /= x2
    x3 = 0.0
    for _ in range(2):  # the second pass removes the rounding error of the first
        along = float(u @ v)
        v -= along * u
        x3 += along
    y3 = float(norm(v))
    if y3 <= FLAT * distance:
        raise UserError("the three models are on one line, so they do not define a plane")
    return Family(first, (u.to(first), (v / y3).to(first))), [(0.0, 0.0), (x2, 0.0), (x3, y3)]
