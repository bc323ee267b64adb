"""Loss and error of models on a line or a plane in parameter space."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F

from fedflat.analysis.measures.directions import Family
from fedflat.bench.data.label_maps import has_label_maps
from fedflat.bench.engine.objective import Batched, Objective
from fedflat.bench.input.errors import UserError
from fedflat.bench.models.network import Network

Point = tuple[float, ...]
CACHED_BYTES = 2**27
"""Inputs of at most this size are cached between points: normalising them takes a few percent of a point's time."""
SHARE_OF_GPU = 0.5
"""The fraction of a GPU's memory that models and feature maps of one batched call may take."""
MOST_TOGETHER = 256
"""Maximum number of points in one batched call."""


@dataclass(frozen=True)
class LandscapeGrid:
    """Points of parameter space: those of one or two axes, each with equal steps, and `further` ones."""

    axes: tuple[Sequence[float], ...]
    further: Sequence[Point] = ()

    @property
    def points(self) -> list[Point]:
        """All points, the last axis fastest, the further points last."""
        return [*product(*self.axes), *self.further]


class Score(NamedTuple):
    """Mean cross-entropy, and the percentage of images that are classified wrongly."""

    loss: float
    error: float


def symmetric_axis(extent: float, points: int) -> list[float]:
    """`points` equally spaced numbers from −extent to extent; a `UserError` if 0 is not one of them."""
    if points < 3 or points % 2 == 0:
        raise UserError(f"{points} grid points per axis (allowed: odd numbers from 3, so that the middle is the model)")
    half = points // 2
    return [extent * step / half for step in range(-half, half + 1)]


def axis_around(values: Sequence[float], margin: float, points: int) -> list[float]:
    """`points` equally spaced numbers over the range of the values and, on both sides, `margin` times that range."""
    low, high = min(values), max(values)
    first, last = low - margin * (high - low), high + margin * (high - low)
    return [first + (last - first) * step / (points - 1) for step in range(points)]


def score(objective: Objective, family: Family, points: Sequence[Point], data: Batched) -> list[Score]:
    """Loss and error of the models at the points, in one batched call if there are several.

    A single point is scored by `Objective.evaluate`. Batched kernels sum in another order: losses of several points
    agree with those of single ones to 1e-5 relative in float32 (1e-12 in float64), and errors up to one image where two
    classes tie. Other batch sizes cause differences of the same size. With label maps, all points are single ones.
    """
    if len(points) == 1 or has_label_maps(next(iter(data))[1]):
        evaluated = (objective.evaluate(family.at(point), data) for point in points)
        return [Score(loss, 100 - accuracy) for loss, accuracy in evaluated]
    return _score_together(objective, torch.stack([family.at(point) for point in points]), data)


@torch.no_grad()
def _score_together(objective: Objective, models: Tensor, data: Batched) -> list[Score]:
    """Loss and error of models `[n, P]`, by torch.func.vmap over their parameters."""
    module, count = objective.load(models[0]).eval(), len(models)

    def outputs(w: Tensor, x: Tensor) -> Tensor:
        return Network(module, objective.layout.split(w), objective.precision)(x)

    loss = wrong = torch.zeros(count, dtype=torch.float64, device=models.device)
    samples = 0
    for x, y in data:
        scores = vmap(outputs, in_dims=(0, None))(models, objective.inputs(x))  # [n, B, classes]
        each = F.cross_entropy(scores.flatten(0, 1), y.repeat(count), reduction="none").view(count, -1)
        loss = loss + each.sum(1).double()
        wrong = wrong + (scores.argmax(2) != y).sum(1)
        samples += len(y)
    return [Score(*pair) for pair in zip((loss / samples).tolist(), (100 * wrong / samples).tolist(), strict=True)]


def points_together(objective: Objective, family: Family, data: Batched) -> int:
    """The number of points in one batched call: as many as fit on a GPU; one on a CPU, where batching is slower.

    It depends on the GPU's total memory and on the memory that two points take, not on the free memory, so that it is
    the same for every call.
    """
    device = objective.device
    if device.type != "cuda":
        return 1
    batch = [next(iter(data))]
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    trial = torch.stack([family.w, family.w])
    try:
        _score_together(objective, trial, batch)
    except RuntimeError as error:  # a user-defined model may branch on values or use operations that vmap lacks
        if "vmap" in str(error) or "functorch" in str(error):
            return 1
        raise
    each = (torch.cuda.max_memory_allocated(device) - before) / len(trial)
    fit = SHARE_OF_GPU * torch.cuda.get_device_properties(device).total_memory / each
    return max(1, min(MOST_TOGETHER, int(fit)))


class CachedBatches:
    """Batches in the objective's memory format, cached between passes if they are small."""

    def __init__(self, objective: Objective, data: Batched) -> None:
        self._inputs = objective.inputs
        self._data = data
        x, _ = next(iter(data))
        self._cached = list(self._formatted()) if len(data) * x.nbytes <= CACHED_BYTES else None

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._formatted() if self._cached is None else iter(self._cached)

    def _formatted(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((self._inputs(x), y) for x, y in self._data)


def chunks(count: int, size: int) -> list[range]:
    """Consecutive ranges of at most `size` numbers that together cover 0, ..., count − 1."""
    return [range(*pair) for pair in pairwise([*range(0, count, size), count])]
