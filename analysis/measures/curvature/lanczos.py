"""Lanczos: eigenvalues of a symmetric operator A that is available only through its products with vectors.

Why not `scipy.sparse.linalg.eigsh`? It has no Gauss quadrature, which the spectral density computes from the same
basis; it stores its basis in host memory, even if the model is on a GPU; and it returns fewer pairs if some do not
converge. For five eigenvalues, the default, eigsh needs a fifth more products; for fifty it is as fast, with less
memory. LeNet, 797,962 parameters, float32, tolerance 1e-3, CPU time of one thread (the machine had other load):

    5 eigenvalues, 250 images   30 products, 20.0 s, 25 vectors; eigsh: 37, 25.0 s, 20 vectors (medians of three)
    50 eigenvalues, 20 images   278 products, 55 s, 228 vectors; eigsh: 287, 52 s, 101 vectors (one run each)

The eigenvalues of both agree to 1e-6, relatively.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import torch_stream

Operator = Callable[[Tensor], Tensor]
"""v `[P]` ↦ A v `[P]`."""

Track = Callable[[Iterable[int]], Iterable[int]]
"""Yields the numbers of the products unchanged, and may report progress."""

MEMORY = 2**32
"""Bytes for basis vectors: 1,300 vectors of LeNet, 96 of a ResNet-18 with 11 million parameters."""

_COLUMNS = 2**16
"""Number of coordinates per block: linear combinations of basis vectors are computed block by block."""


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues `[k]` in descending order and unit eigenvectors `[k, P]`.

    `residuals` `[k]` are the measured ‖Av − λv‖: A has an eigenvalue within that distance of λ. `products` counts all
    products with A, including those that measure residuals. `scale` is the largest |λ| that was seen: a lower bound of
    ‖A‖.
    """

    values: NDArray[np.float64]
    vectors: Tensor
    residuals: NDArray[np.float64]
    products: int
    scale: float


def resolution(dtype: torch.dtype) -> float:
    """Size, relative to ‖A‖, of residuals that a number format can just resolve: eps^(2/3), ARPACK's bound."""
    return float(torch.finfo(dtype).eps ** (2 / 3))


class Krylov:
    """An orthonormal basis V `[size, P]` of a Krylov space, and the projection T = V A Vᵀ `[size, size]`.

    Every new vector is orthogonalised against all others, twice (classical Gram-Schmidt), so that no eigenvalue appears
    twice. Vectors have the operator's number format, T is float64. `rest` is the norm of the component of A v_last
    outside of the basis: for a pair (θ, s) of T, ‖A(sV) − θ(sV)‖ = rest·|s_last|.
    """

    def __init__(self, product: Operator, start: Tensor, rows: int) -> None:
        self._product = product
        self._vectors = start.new_empty(min(rows, len(start)), len(start))
        self._projection = np.zeros((len(self._vectors),) * 2)
        self._next = start / torch.linalg.vector_norm(start)
        self._draws = 0
        self.size = 0
        self.rest = np.inf

    @property
    def is_full(self) -> bool:
        """Whether the memory has no room for another vector."""
        return self.size == len(self._vectors)

    @property
    def is_invariant(self) -> bool:
        """Whether A maps the space to itself, up to rounding: then T's eigenvalues are eigenvalues of A."""
        scale = np.abs(self._projection[: self.size, : self.size]).max(initial=0)
        epsilon = torch.finfo(self._vectors.dtype).eps
        return self.size > 0 and bool(self.size == self._vectors.shape[1] or self.rest <= 10 * epsilon * scale)

    def grow(self) -> None:
        """Add one vector to the basis, by one product with A; a `UserError` if the product is not finite."""
        j = self.size
        self._vectors[j] = self._next
        column, outside = self._split(self._product(self._vectors[j]), j + 1)
        if not np.isfinite(column).all():
            raise UserError("a product with the Hessian is not finite, so the eigenvalues cannot be computed")
        self._projection[: j + 1, j] = self._projection[j, : j + 1] = column
        self.size = j + 1
        self.rest = _norm(outside)
        if self.is_invariant and not self.is_full:  # continue in a random direction outside of the space
            self._draws += 1
            stream = torch_stream(0, "lanczos-direction", self._draws)
            outside = self._split(torch.randn(len(outside), generator=stream).to(outside), j + 1)[1]
        self._next = outside / torch.linalg.vector_norm(outside)

    def ritz(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Eigenvalues `[size]` of T in descending order, and its eigenvectors in the columns of `[size, size]`."""
        values, vectors = np.linalg.eigh(self._projection[: self.size, : self.size])
        return values[::-1], vectors[:, ::-1]

    def restart(self, values: NDArray[np.float64], vectors: NDArray[np.float64]) -> None:
        """Replace the basis by some of its Ritz vectors; the next vector is unchanged (Wu and Simon 2000)."""
        self.combine(vectors)
        self.size = len(values)
        self._projection[:] = 0
        np.fill_diagonal(self._projection[: self.size, : self.size], values)

    def combine(self, vectors: NDArray[np.float64]) -> Tensor:
        """Linear combinations `[k, P]` of the basis, weighted by columns of `[size, k]`; they overwrite the basis."""
        combination = torch.from_numpy(vectors.T.copy()).to(self._vectors)
        for part in self._vectors[: self.size].split(_COLUMNS, dim=1):
            part[: len(combination)] = combination @ part
        return self._vectors[: len(combination)]

    def _split(self, v: Tensor, size: int) -> tuple[NDArray[np.float64], Tensor]:
        """Coordinates of v in the first `size` basis vectors, and its component orthogonal to them."""
        basis, coordinates = self._vectors[:size], np.zeros(size)
        for _ in range(2):
            inside = basis @ v
            v = torch.addmv(v, basis.T, inside, alpha=-1)
            coordinates += inside.double().cpu().numpy()
        return coordinates, v


def largest_eigenpairs(
    product: Operator,
    start: Tensor,
    k: int,
    *,
    tolerance: float,
    max_products: int = 1000,
    memory: int = MEMORY,
    track: Track = iter,
) -> Eigenpairs:
    """The k algebraically largest eigenvalues of A, 0 < k ≤ P, by thick-restart Lanczos from `start` `[P]`.

    It stops when every estimated residual is at most `tolerance`·|λ|, or at most what the number format can resolve
    (`resolution`·‖A‖), or after `max_products`. Then k more products measure the residuals, and each λ is
    the Rayleigh quotient of its vector, in float64: its error is of the order of residual²/gap. The basis may take
    `memory` bytes, or k + 20 vectors if that is more; when it is full, it is replaced by the best Ritz vectors and
    grows again (Wu and Simon, SIAM J. Matrix Anal. Appl. 22, 2000). An eigenvalue of multiplicity m may be found fewer
    than m times.
    """
    vector_bytes = start.element_size() * len(start)
    krylov = Krylov(product, start, min(max(memory // vector_bytes, k + 20), max_products))
    products, next_check = 0, k
    for number in track(range(1, max_products + 1)):
        krylov.grow()
        products = number
        if number < next_check and not krylov.is_full:
            continue
        next_check = number + max(5, krylov.size // 20)
        values, vectors = krylov.ritz()
        bound = np.maximum(tolerance * np.abs(values[:k]), resolution(start.dtype) * np.abs(values).max())
        if len(values) >= k and (krylov.is_invariant or (krylov.rest * np.abs(vectors[-1, :k]) <= bound).all()):
            break
        if krylov.is_full and number < max_products:
            best = (k + krylov.size) // 2
            krylov.restart(values[:best], vectors[:, :best])
    values, vectors = krylov.ritz()
    return measured(product, krylov.combine(vectors[:, :k]), None, products, scale=float(np.abs(values).max()))


def measured(
    product: Operator, vectors: Tensor, values: NDArray[np.float64] | None, products: int, scale: float = 0.0
) -> Eigenpairs:
    """Eigenpairs with measured residuals, in descending order of λ; without `values`, λ are Rayleigh quotients.

    `products`: the number of products that computed the `vectors`, which are normalised and sorted in place. `scale`:
    the largest |λ| that was seen, if it is none of these.
    """
    rows = []
    for i, v in enumerate(vectors):
        v.div_(torch.linalg.vector_norm(v))
        Av, v64 = product(v).double(), v.double()
        value = float(Av @ v64) if values is None else float(values[i])
        rows.append((value, _norm(Av - value * v64)))
    found, residuals = np.array(rows).T
    order = np.argsort(-found, kind="stable")
    for part in vectors.split(_COLUMNS, dim=1):
        part[:] = part[torch.from_numpy(order).to(part.device)]
    scale = max(scale, float(np.abs(found).max()))
    return Eigenpairs(found[order], vectors, residuals[order], products + len(vectors), scale)


def gauss_quadrature(product: Operator, start: Tensor, steps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes θ `[m]` and weights `[m]`, m ≤ steps, of vᵀf(A)v ≈ Σ weight·f(θ), v the unit vector along `start`.

    Exact for polynomials up to degree 2m − 1; the weights are squared first components of T's eigenvectors (Golub and
    Welsch 1969). The basis takes steps·P numbers.
    """
    krylov = Krylov(product, start, steps)
    while not (krylov.is_full or krylov.is_invariant):
        krylov.grow()
    nodes, vectors = krylov.ritz()
    return nodes, vectors[0] ** 2


def _norm(v: Tensor) -> float:
    return float(torch.linalg.vector_norm(v, dtype=torch.float64))
