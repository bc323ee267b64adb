"""Part of the Python API: the curvature of a user-defined model on the user's tensors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from math import inf, prod
from numbers import Real

import pandas as pd
import torch
from torch import Tensor, nn

from analysis.measures.curvature.hessian import TopEigenvalues, top_eigenvalues
from analysis.measures.directions import Biases, Family, filter_normalised_directions
from analysis.measures.flatness import Ascent
from analysis.measures.flatness import sharpness as measured_sharpness
from analysis.measures.landscape import Grid, Prepared, score, symmetric_axis
from bench.engine.objective import Objective
from bench.engine.own_tensors import OwnSamples, check_model, own_batches
from bench.input.bounds import check_count, check_flag
from bench.input.errors import UserError
from bench.models.network import has_buffers
from bench.numerics.precision import at_least_single
from bench.numerics.streams import torch_stream
from bench.training.calibration import SMALL
from fedflat.progress_bar import progress_bar

Batches = list[tuple[Tensor, Tensor]]


def hessian(
    model: nn.Module, data: OwnSamples, k: int = 1, *, tolerance: float = 1e-3, batch_size: int = 1000
) -> TopEigenvalues:
    """The k algebraically largest eigenvalues of the Hessian of the mean cross-entropy, by Lanczos iteration.

    `data`: inputs `[n, ...]` and labels `[n]`. Iterates until each residual ‖Hv − λv‖ is at most `tolerance`·|λ|,
    or λ cannot be told from 0: then `converged` is True.
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
    check_count("k", k)
    _check_lengths({"tolerance": tolerance})
    with _own(model, data, batch_size) as (objective, w, batches):
        return top_eigenvalues(objective, w, batches, k, tolerance=tolerance)


def sharpness(
    model: nn.Module,
    data: OwnSamples,
    rho: float = 0.05,
    *,
    steps: int = 10,
    step: float = 1.0,
    batch_size: int = 1000,
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
    check_count("steps", steps)
    _check_lengths({"rho": rho, "step": step})
    with _own(model, data, batch_size) as (objective, w, batches):
        return measured_sharpness(objective, w, batches, float(rho), Ascent(steps, float(step)))


def surface(
    model: nn.Module,
    data: OwnSamples,
    *,
    extent: float = 1.0,
    points: int = 21,
    biases: Biases = "zero",
    orthogonal: bool = False,
    seed: int = 0,
    batch_size: int = 1000,
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
    check_count("points", points)
    _check_lengths({"extent": extent})
    check_flag("orthogonal", orthogonal)
    grid = Grid((symmetric_axis(float(extent), points),) * 2)
    if biases not in ("zero", "normalised"):
        raise UserError(f"biases = {biases!r} (allowed: zero, normalised)")
    stream = torch_stream(seed, "surface-directions")
    with _own(model, data, batch_size) as (objective, w, batches):
        directions = filter_normalised_directions(objective.layout, w, stream, biases=biases, orthogonal=orthogonal)
        plane, prepared, rows = Family(w, directions), Prepared(objective, batches), []
        with progress_bar("surface", len(grid.points), "point", progress) as bar:
            for point in grid.points:
                rows.append((*point, *score(objective, plane, [point], prepared)[0]))
                bar.update()
    return pd.DataFrame(rows, columns=["a", "b", "loss", "error"])


def _check_lengths(values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < inf:
            raise UserError(f"{name} = {value!r} (allowed: numbers above 0)")


@contextmanager
def _own(model: nn.Module, data: OwnSamples, batch_size: int) -> Iterator[tuple[Objective, Tensor, Batches]]:
    """The loss of a copy of the model, its parameters `[P]`, and the batches; a small model has one thread."""
    check_model(model)
    # No federation here: what it would do with buffers does not matter.
    copy = at_least_single(deepcopy(model))
    objective = Objective(copy, buffer_mode="average" if has_buffers(model) else None)
    batches, threads = own_batches(objective, "data", data, batch_size), torch.get_num_threads()
    if objective.layout.total * prod(batches[0][0].shape[1:]) <= SMALL:
        torch.set_num_threads(1)
    try:
        yield objective, objective.initial(), batches
    finally:
        torch.set_num_threads(threads)
