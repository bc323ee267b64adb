"""Part of the Python API: the curvature of a user-defined model on the user's tensors."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Annotated

import pandas as pd
import torch
from torch import Tensor, nn

from fedflat.analysis.measures.curvature.hessian import TopEigenvalues, top_eigenvalues
from fedflat.analysis.measures.directions import Biases, Family, filter_normalised_directions
from fedflat.analysis.measures.flatness import Ascent
from fedflat.analysis.measures.flatness import sharpness as measured_sharpness
from fedflat.analysis.measures.landscape import CachedBatches, LandscapeGrid, score, symmetric_axis
from fedflat.bench.data.dataset import Batches
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.own_inputs import OwnSamples
from fedflat.bench.engine.own_tensors import Model, copied, own_batches
from fedflat.bench.input.arguments import Argument, checked
from fedflat.bench.input.bounds import Count, Images, Length, Points, Positive, Seed
from fedflat.bench.models.network import has_buffers
from fedflat.bench.numerics.precision import at_least_single
from fedflat.bench.numerics.streams import torch_stream
from fedflat.bench.training.calibration import SMALL
from fedflat.progress_bar import progress_bar

Samples = Annotated[OwnSamples, Argument.checked_later()]


@checked
def hessian(
    model: Model, data: Samples, k: Count = 1, *, tolerance: Positive = 1e-3, batch_size: Images = 1000
) -> TopEigenvalues:
    """The k algebraically largest eigenvalues of the Hessian of the mean cross-entropy, by Lanczos iteration.

    `data`: inputs `[n, ...]` and labels `[n]`. Iterates until each residual ‖Hv − λv‖ is at most `tolerance`·|λ|,
    or λ cannot be distinguished from 0: then `converged` is True.
    Computes in float32, or in float64 if the model is, on its device, in batches of `batch_size`; the model is not
    changed. A model with buffers, such as the statistics of BatchNorm, is in evaluation mode: its loss is that with the
    stored buffers.

    >>> import fedflat, torch
    >>> model = torch.nn.Linear(2, 2)
    >>> for parameter in model.parameters():
    ...     _ = torch.nn.init.zeros_(parameter)
    >>> x, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
    >>> top = fedflat.hessian(model, (x, y), k=2)
    >>> [round(value, 4) for value in top.eigenvalues], top.converged
    ([0.75, 0.25], True)

    Raises `UserError` if k is not smaller than the number of parameters, if `data` are empty or do not fit the
    model, or if the model has torch's dropout.
    """
    with _own(model, data, batch_size) as (objective, w, batches):
        return top_eigenvalues(objective, w, batches, k, tolerance=tolerance)


@checked
def sharpness(
    model: Model, data: Samples, rho: Length = 0.05, *, steps: Count = 10, step: Length = 1.0, batch_size: Images = 1000
) -> float:
    """max over ‖δ‖ ≤ ρ of F(w + δ) − F(w), F the mean cross-entropy over the data, by projected gradient ascent.

    A lower bound: the best point of `steps` ascent steps, each `step`·ρ long. One step gives SAM's perturbation.
    `data` and errors as for `hessian`.

    >>> import fedflat, torch
    >>> model = torch.nn.Linear(3, 2)
    >>> x, y = torch.randn(20, 3), torch.arange(20) % 2
    >>> 0 < fedflat.sharpness(model, (x, y), rho=0.05) < fedflat.sharpness(model, (x, y), rho=0.1)
    True
    """
    with _own(model, data, batch_size) as (objective, w, batches):
        return measured_sharpness(objective, w, batches, rho, Ascent(steps, step))


@checked
def surface(
    model: Model,
    data: Samples,
    *,
    extent: Length = 1.0,
    points: Points = 21,
    biases: Biases = "zero",
    orthogonal: bool = False,
    seed: Seed = 0,
    batch_size: Images = 1000,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Loss and error on a random plane around the model, spanned by filter-normalised directions (Li et al. 2018).

    One row per point: coordinates `a` and `b` from −`extent` to `extent`, mean cross-entropy `loss`, and `error`, the
    percentage of wrong classes. `points` per direction: an odd number, so that the model itself is the middle one.
    Equal seeds give all models of one size the same random draws. Other options as for the analysis `surface`; `data`
    and errors as for `hessian`, `progress` as for `simulate`.

    >>> import fedflat, torch
    >>> x, y = torch.randn(20, 3), torch.arange(20) % 2
    >>> plane = fedflat.surface(torch.nn.Linear(3, 2), (x, y), points=5)
    >>> plane.pivot(index="a", columns="b", values="loss").shape
    (5, 5)
    """
    grid = LandscapeGrid((symmetric_axis(extent, points),) * 2)
    stream = torch_stream(seed, "surface-directions")
    with _own(model, data, batch_size) as (objective, w, batches):
        directions = filter_normalised_directions(objective.layout, w, stream, biases=biases, orthogonal=orthogonal)
        plane, prepared, rows = Family(w, directions), CachedBatches(objective, batches), []
        with progress_bar("surface", len(grid.points), "point", progress) as bar:
            for point in grid.points:
                rows.append((*point, *score(objective, plane, [point], prepared)[0]))
                bar.update()
    return pd.DataFrame(rows, columns=["a", "b", "loss", "error"])


@contextmanager
def _own(model: nn.Module, data: OwnSamples, batch_size: int) -> Iterator[tuple[Objective, Tensor, Batches]]:
    """The loss of a copy of the model, its parameters `[P]`, and the batches; a small model has one thread."""
    # No federation here: what it would do with buffers does not matter.
    copy = at_least_single(copied(model))
    objective = Objective(copy, buffer_mode="average" if has_buffers(model) else None)
    batches, threads = own_batches(objective, "data", data, batch_size), torch.get_num_threads()
    if objective.layout.total * prod(batches.data.input_shape[1:]) <= SMALL:
        torch.set_num_threads(1)
    try:
        yield objective, objective.initial(), batches
    finally:
        torch.set_num_threads(threads)
