"""Products with the Hessian of the loss, and the Hessian's largest eigenvalues."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import compress, islice, zip_longest
from typing import Literal

import torch
from torch import Tensor

from fedflat.analysis.measures.curvature.attention import twice_differentiable
from fedflat.analysis.measures.curvature.lanczos import Operator, Track, largest_eigenpairs, resolution
from fedflat.analysis.measures.curvature.power_iteration import deflated_power_iteration
from fedflat.analysis.measures.curvature.pyhessian_power import pyhessian_eigenpairs
from fedflat.bench.engine.objective import Batched, Objective
from fedflat.bench.host.memory import graph_bytes
from fedflat.bench.input.errors import UserError
from fedflat.bench.models.network import cross_entropy
from fedflat.bench.numerics.streams import torch_stream

Estimator = Literal["lanczos", "power", "pyhessian"]
NumberFormat = Literal["float32", "float64"]

GRAPH_MEMORY = 2**31
"""Bytes of memory for the autograd graphs of gradients that all products reuse."""


@dataclass(frozen=True)
class TopEigenvalues:
    """The largest eigenvalues of a Hessian, and their accuracy.

    `eigenvalues` are in descending order. `residuals` are the measured ‖Hv − λv‖ of the unit eigenvectors v: H has an
    eigenvalue within that distance of λ. `products` counts Hessian-vector products. `resolution`: eigenvalues up to
    this size cannot be distinguished from 0 in the number format of the products.
    """

    eigenvalues: tuple[float, ...]
    residuals: tuple[float, ...]
    tolerance: float
    products: int
    resolution: float = 0.0

    @property
    def within_tolerance(self) -> tuple[bool, ...]:
        """Whether each eigenvalue's residual is at most `tolerance`·|λ|; or λ and residual are at most `resolution`.

        The second rule is for eigenvalues that are 0 up to rounding, as most are of a model with more parameters than
        the data determine: no residual is small in comparison with 0.
        """
        pairs = zip(self.eigenvalues, self.residuals, strict=True)
        return tuple(
            residual <= self.tolerance * abs(value) or max(abs(value), residual) <= self.resolution
            for value, residual in pairs
        )

    @property
    def converged(self) -> bool:
        """Whether all eigenvalues are within the tolerance."""
        return all(self.within_tolerance)

    def ratio(self, i: int = 5) -> float:
        """λ_1/λ_i (Caldarola et al. 2022 report i = 5); NaN where λ_i is missing or zero."""
        divisor = self.eigenvalues[i - 1] if i <= len(self.eigenvalues) else 0
        return self.eigenvalues[0] / divisor if divisor else float("nan")


def top_eigenvalues(
    objective: Objective,
    w: Tensor,
    data: Batched,
    k: int = 5,
    *,
    tolerance: float = 1e-3,
    estimator: Estimator = "lanczos",
    steps: int = 20,
    iterations: int = 100,
    change: float = 1e-3,
    max_products: int = 1000,
    track: Track = iter,
) -> TopEigenvalues:
    """The k algebraically largest eigenvalues of ∇²F(w), F the mean cross-entropy over all of the data.

    `lanczos` iterates until residuals are at most `tolerance`·|λ|, or until `max_products`. `power` finds the k
    eigenvalues of largest modulus, by at most `steps` power iterations each, as in published work. So does `pyhessian`,
    the package, by at most `iterations`, until an estimate changes by less than `change`, relatively. All start from
    fixed vectors, so that on a CPU the same call gives the same bits. A `UserError` unless 0 < k < P and k ≤
    `max_products`. If the gradient is not finite, all eigenvalues are NaN.
    """
    if not 0 < k < w.numel():
        raise UserError(f"k = {k} eigenvalues of a model with {w.numel()} parameters (allowed: 1 to {w.numel() - 1})")
    if k > max_products:
        raise UserError(f"{k} eigenvalues need at least {k} products, but max_products = {max_products}")
    if not bool(objective.full_gradient(w, data).isfinite().all()):
        nothing = (float("nan"),) * k
        return TopEigenvalues(nothing, nothing, tolerance, 0)
    product = hessian_product(objective, w, data)
    start = torch.randn(w.numel(), generator=torch_stream(0, "lanczos-start")).to(w)
    if estimator == "pyhessian":
        found = pyhessian_eigenpairs(objective, w, data, k, product, iterations=iterations, change=change, track=track)
    elif estimator == "power":
        found = deflated_power_iteration(product, start, k, steps=steps, track=track)
    else:
        found = largest_eigenpairs(product, start, k, tolerance=tolerance, max_products=max_products, track=track)
    values, residuals = tuple(found.values.tolist()), tuple(found.residuals.tolist())
    return TopEigenvalues(values, residuals, tolerance, found.products, resolution(w.dtype) * found.scale)


def hessian_product(objective: Objective, w: Tensor, data: Batched, memory: int = GRAPH_MEMORY) -> Operator:
    """v `[P]` ↦ ∇²F(w) v `[P]`, by differentiating the gradient in direction v (Pearlmutter 1994).

    The objective's parameters must stay at w while the function is in use. Batches are weighted by their size and
    summed in float64. The graphs of the first batches' gradients, as many as fit into `memory` bytes, are reused by all
    products, which saves up to a third of the time. Reverse mode is used twice, because forward mode, which curvlinops
    uses, does not exist for GroupNorm. Images stay contiguous even if `channels_last` is set: the gradient is slower,
    but the product, which is computed many times, takes 7 to 12 % less time (LeNet, ResNet-18-GN on a CPU).
    """
    module = objective.load(w).eval()

    def gradient(x: Tensor, y: Tensor) -> list[Tensor]:
        with torch.enable_grad(), twice_differentiable():
            return objective.derivatives(cross_entropy(module(x), y), {}, create_graph=True)

    x, y = next(iter(data))
    fit = memory // max(1, graph_bytes(lambda: gradient(x, y)))
    first_gradients = [gradient(x, y) for x, y in islice(data, fit)]

    def product(v: Tensor) -> Tensor:
        along = list(objective.layout.split(v).values())
        total, samples = torch.zeros_like(v, dtype=torch.float64), 0
        for (x, y), stored in zip_longest(data, first_gradients):
            first = stored or gradient(x, y)
            used = [g.requires_grad for g in first]  # all but those of auxiliary heads
            second = torch.autograd.grad(
                list(compress(first, used)),
                objective.parameters,
                list(compress(along, used)),
                retain_graph=stored is not None,
                materialize_grads=True,
            )
            total.add_(torch.cat([part.reshape(-1) for part in second]), alpha=len(y))
            samples += len(y)
        return (total / samples).to(v)

    return product


@dataclass(frozen=True)
class _Converted:
    """Batches with inputs converted to another number format."""

    data: Batched
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((x.to(self.dtype), y) for x, y in self.data)


def in_format(objective: Objective, w: Tensor, data: Batched, name: NumberFormat) -> tuple[Objective, Tensor, Batched]:
    """Objective, parameters and data converted to a number format; no copies if they have it already."""
    dtype = getattr(torch, name)
    if objective.dtype == dtype:
        return objective, w, data
    module = deepcopy(objective.module).to(dtype)
    converted = Objective(module, channels_last=objective.channels_last, buffer_mode=objective.buffer_mode)
    if objective.buffers is not None:
        converted.buffers = objective.buffers.to(dtype)
    return converted, w.to(dtype), _Converted(data, dtype)
