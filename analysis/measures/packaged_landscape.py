"""Loss and error on lines and planes by the package loss-landscapes, for what it computes right.

Right are the values of `linear_interpolation` and `planar_interpolation`, at coordinates that follow from the source of
version 3.0.6:

- A line has the points 1/steps, 2/steps, ..., 1 of the way from start to end, without the start.
- A plane has rows i = 0, ..., steps − 1 at i/steps towards the first end. In even rows the columns j are at
  (j + 1)/steps towards the second end, in odd rows at j/steps, although the result is one grid: it is sheared. Here one
  row and one column more are computed, and each row's columns with the requested coordinates are kept.
- Both move the given models and switch off their gradients. Here they are given copies.

Wrong are `random_line` and `random_plane`: their directions are uniform on [0, 1] instead of Gaussian, biases are
normalised number by number, `distance` acts inversely, and a filter of zeros is a division by zero. They are not used.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from importlib.metadata import version
from itertools import compress
from typing import Any

import numpy as np
from loss_landscapes import linear_interpolation, planar_interpolation
from loss_landscapes.metrics.metric import Metric
from numpy.typing import NDArray
from torch import cat

from fedflat.analysis.measures.curvature.lanczos import Track
from fedflat.analysis.measures.directions import Family
from fedflat.analysis.measures.landscape import Score
from fedflat.bench.engine.objective import Batched, Objective

NAME = f"loss-landscapes {version('loss-landscapes')}"


class _LossAndError(Metric):  # type: ignore[misc]  # the package has no types
    """The package's interface to a quantity of a model: mean cross-entropy and the percentage of wrong images."""

    def __init__(self, objective: Objective, data: Batched, numbers: Iterator[int]) -> None:
        self._objective, self._data, self._numbers = objective, data, numbers
        self._trained = [parameter.requires_grad for parameter in objective.module.parameters()]

    def __call__(self, model: Any) -> tuple[float, float]:
        """Loss and error; `model` is the package's wrapper of a moved model."""
        next(self._numbers)
        parameters = compress(model.get_module_parameters().parameters, self._trained)
        w = cat([parameter.reshape(-1) for parameter in parameters])
        loss, accuracy = self._objective.evaluate(w, self._data)
        return loss, 100 - accuracy


def packaged_scores(
    objective: Objective, family: Family, axes: Sequence[Sequence[float]], data: Batched, track: Track = iter
) -> list[Score]:
    """Loss and error at the points of a line or a square grid, as `itertools.product` of the axes orders them.

    `axes`: one or two, each `[n]` with n ≥ 2 and equal steps. The package adds one step after the other to a model: in
    float32 the losses agree with those of `score` to 1e-5, relatively (1e-10 in float64).
    """
    n, origin = len(axes[0]), [axis[0] for axis in axes]
    steps = [(axis[-1] - axis[0]) / (n - 1) for axis in axes]
    origin[-1] -= steps[-1]  # the package's points begin one step after its start
    count = n if len(axes) == 1 else n + 1
    ends = [
        [x + count * step * (i == k) for i, (x, step) in enumerate(zip(origin, steps, strict=True))]
        for k in range(len(axes))
    ]
    models = [deepcopy(objective.load(family.at(point))).eval() for point in (origin, *ends)]
    metric = _LossAndError(objective, data, iter(track(range(count ** len(axes)))))
    if len(axes) == 1:
        found = linear_interpolation(*models, metric, count)
    else:
        found = _unsheared(planar_interpolation(*models, metric, count))
    return [Score(*map(float, pair)) for pair in found.reshape(-1, 2)]


def _unsheared(grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The `[n, n, 2]` values at the requested points, of the package's `[n + 1, n + 1, 2]`."""
    n = len(grid) - 1
    return np.stack([row[i % 2 : i % 2 + n] for i, row in enumerate(grid[:n])])
