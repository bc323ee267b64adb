"""How sharp is the loss around a model? The largest eigenvalues of its Hessian."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor
from torch.nn.functional import cross_entropy

from bench.engine.objective import Batched, Objective
from bench.engine.streams import numpy_stream
from bench.errors import UserError


@dataclass(frozen=True)
class Spectrum:
    """The largest eigenvalues of a Hessian, and how far to trust them.

    `eigenvalues` descend; `residuals` are ‖Hv − λv‖ of the unit eigenvectors, an upper bound on the distance
    of each λ to an eigenvalue. Pairs that did not converge are NaN, at the end; `converged` says whether all
    did (if not, a larger eigenvalue may be among the missing). `products` counts Hessian-vector products.
    """

    eigenvalues: tuple[float, ...]
    residuals: tuple[float, ...]
    products: int
    converged: bool

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
    max_restarts: int = 100,
) -> Spectrum:
    """The k algebraically largest eigenvalues of ∇²F(w), F the mean cross-entropy over all of the data.

    Implicitly restarted Lanczos (ARPACK) on Hessian-vector products, from a fixed start vector, so that on a
    CPU the same call gives the same bits. It stops when every residual is below `tolerance`·|λ|, an
    eigenvalue's own error being of the order of residual²/gap, or after `max_restarts`. Needs 0 < k < P, else
    a `UserError`. A model whose gradient is not finite has no spectrum: all NaN.
    """
    if not 0 < k < w.numel():
        raise UserError(f"k = {k} eigenvalues of a model with {w.numel()} parameters (allowed: 1 to {w.numel() - 1})")
    if not bool(objective.full_gradient(w, data).isfinite().all()):
        return _spectrum(np.empty(0), np.empty(0), k, 0)
    hessian = _Counted(hessian_product(objective, w, data), w)
    start = numpy_stream(0, "lanczos-start").standard_normal(w.numel()).astype(hessian.operator.dtype)
    values: NDArray[np.floating]
    vectors: NDArray[np.floating]
    try:
        values, vectors = eigsh(hessian.operator, k, which="LA", v0=start, tol=tolerance, maxiter=max_restarts)
    except ArpackError as error:
        # ArpackNoConvergence carries the pairs that are done; other breakdowns (H = 0) leave none.
        values = getattr(error, "eigenvalues", np.empty(0))
        vectors = getattr(error, "eigenvectors", np.empty((w.numel(), 0)))
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    residuals = [np.linalg.norm(hessian(v) - value * v) for value, v in zip(values, vectors.T, strict=True)]
    return _spectrum(values, np.array(residuals), k, hessian.products)


def hessian_product(objective: Objective, w: Tensor, data: Batched) -> Callable[[Tensor], Tensor]:
    """v `[P]` ↦ ∇²F(w) v `[P]`, by differentiating the gradient in direction v (Pearlmutter 1994).

    The objective must stay at w while the function is in use. Reverse mode twice: forward mode, which
    curvlinops uses, does not exist for GroupNorm.
    """
    module = objective.load(w).eval()

    def gradient(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            loss = cross_entropy(module(x), y)
            return torch.autograd.grad(loss, objective.parameters, create_graph=True)

    # With one batch its graph serves all products, at no more memory than one product needs.
    kept = gradient(*next(iter(data))) if len(data) == 1 else None

    def product(v: Tensor) -> Tensor:
        along = list(objective.layout.split(v).values())
        total, samples = torch.zeros_like(v), 0
        for x, y in data:
            first = kept or gradient(x, y)
            second = torch.autograd.grad(first, objective.parameters, along, retain_graph=kept is not None)
            total += torch.cat([part.reshape(-1) for part in second]) * len(y)
            samples += len(y)
        return total / samples

    return product


class _Counted:
    """A Hessian product on NumPy vectors in the model's number format, counted, and as SciPy's operator."""

    def __init__(self, product: Callable[[Tensor], Tensor], w: Tensor) -> None:
        self.product, self.w, self.products = product, w, 0
        dtype = torch.empty(0, dtype=w.dtype).numpy().dtype
        self.operator = LinearOperator((w.numel(), w.numel()), matvec=self, dtype=dtype)

    def __call__(self, v: NDArray[np.floating]) -> NDArray[np.floating]:
        self.products += 1
        out: NDArray[np.floating] = self.product(torch.from_numpy(v.reshape(-1)).to(self.w)).cpu().numpy()
        return out


def _spectrum(values: NDArray[np.floating], residuals: NDArray[np.floating], k: int, products: int) -> Spectrum:
    missing = (float("nan"),) * (k - len(values))
    return Spectrum(
        (*map(float, values), *missing), (*map(float, residuals), *missing), products, converged=not missing
    )
