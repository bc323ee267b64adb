"""What does the loss look like on a plane through a model? Filter-normalised random directions."""

import pandas as pd
import torch
from torch import Tensor

from analysis.directions import gaussian_directions
from bench.engine.objective import Batched, Layout, Objective
from bench.errors import UserError
from bench.methods.base import norm, unit


def filter_normalised_directions(layout: Layout, w: Tensor, stream: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two random directions `[P]` in the units of the model's own filters (Li et al. 2018, sec. 4).

    Gaussian, each filter (first index of a convolution's or a linear layer's weight) scaled to the norm of
    the same filter of w; zero for tensors of at most one dimension (biases, normalisation parameters), an
    option of that paper's released code. The stream is read, not advanced: equal streams give every model the
    same Gaussian draws, so that directions of different models differ by their filters' norms only.
    """
    first, second = (_normalise(layout, noise, w) for noise in gaussian_directions(w, 2, stream))
    return first, second


def _normalise(layout: Layout, noise: Tensor, w: Tensor) -> Tensor:
    direction = torch.zeros_like(w)
    tensors = zip(*(layout.split(flat).values() for flat in (direction, noise, w)), strict=True)
    for out, random, weight in tensors:
        if weight.dim() > 1:
            out.copy_((unit(random.flatten(1)) * norm(weight.flatten(1))).view_as(out))
    return direction


def plane(
    objective: Objective,
    w: Tensor,
    data: Batched,
    *,
    d1: Tensor,
    d2: Tensor,
    extent: float,
    points: int,
) -> pd.DataFrame:
    """F(w + a d1 + b d2) over a square grid: columns a, b, loss; `points`² rows, a outermost.

    a and b take `points` equally spaced values from −extent to extent. `points` must be odd and at least 3,
    else a `UserError`: the middle of the grid is then w itself.
    """
    if points < 3 or points % 2 == 0:
        raise UserError(f"{points} grid points per axis (allowed: odd numbers from 3, so that the middle is the model)")
    half = points // 2
    axis = [extent * step / half for step in range(-half, half + 1)]
    rows = [(a, b, objective.loss(w + a * d1 + b * d2, data)) for a in axis for b in axis]
    return pd.DataFrame(rows, columns=["a", "b", "loss"])
