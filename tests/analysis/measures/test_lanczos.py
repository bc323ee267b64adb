"""Lanczos and power iteration on matrices whose eigenvalues are known."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedflat.analysis.measures.curvature.lanczos import Krylov, Operator, gauss_quadrature, largest_eigenpairs
from fedflat.analysis.measures.curvature.power_iteration import deflated_power_iteration
from fedflat.bench.input.errors import UserError

SIZE = 120


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rotated(eigenvalues: Tensor, seed: int = 0) -> tuple[Operator, Tensor]:
    """A matrix with these eigenvalues as a product, and its eigenvectors in columns, in a random orthonormal basis."""
    size = len(eigenvalues)
    basis = torch.linalg.qr(torch.randn(size, size, generator=stream(seed), dtype=torch.float64))[0]
    matrix = ((basis * eigenvalues) @ basis.T).to(eigenvalues)
    return lambda v: matrix @ v, basis


def start(size: int = SIZE, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(size, generator=stream(7), dtype=dtype)


@given(
    values=st.lists(st.floats(-10, 10), min_size=6, max_size=30, unique_by=lambda v: round(v, 1)),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_pairs_are_those_of_the_matrix(values: list[float], seed: int) -> None:
    eigenvalues = torch.tensor(sorted(values, reverse=True), dtype=torch.float64)
    product, basis = rotated(eigenvalues, seed)
    found = largest_eigenpairs(product, start(len(values)), 4, tolerance=1e-9)
    np.testing.assert_allclose(found.values, eigenvalues[:4], atol=1e-8)
    vectors = found.vectors
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(4), atol=1e-10)
    assert ((vectors @ basis[:, :4]).diagonal().abs() > 1 - 1e-8).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_eigenvalue_lies_within_the_residual(dtype: torch.dtype) -> None:
    eigenvalues = torch.linspace(-3, 5, SIZE, dtype=torch.float64).to(dtype)
    product, _ = rotated(eigenvalues)
    for products in (12, 20, 40):
        found = largest_eigenpairs(product, start(dtype=dtype), 8, tolerance=1e-6, max_products=products)
        distance = np.abs(found.values[:, None] - eigenvalues.double().numpy()).min(axis=1)
        assert (distance <= found.residuals + 1e-5).all()
        for value, vector, residual in zip(found.values, found.vectors.double(), found.residuals, strict=True):
            left = product(vector.to(dtype)).double() - value * vector
            assert residual == pytest.approx(float(left.norm()), rel=1e-3, abs=1e-9)


def test_a_small_basis_is_restarted_and_finds_the_same() -> None:
    eigenvalues = torch.linspace(0, 1, 400, dtype=torch.float64).flip(0) ** 3
    product, _ = rotated(eigenvalues)
    whole = largest_eigenpairs(product, start(400), 5, tolerance=1e-8)
    small = largest_eigenpairs(product, start(400), 5, tolerance=1e-8, memory=0)
    assert small.vectors.untyped_storage().nbytes() == 25 * 400 * 8, "k + 20 vectors"
    assert whole.products < small.products, "as a basis that must forget needs more"
    for found in (whole, small):
        np.testing.assert_allclose(found.values, eigenvalues[:5], atol=1e-12)
        assert (found.residuals <= 1e-8).all()


def test_the_default_bound_holds_fifty_vectors_of_a_resnet() -> None:
    """P = 11 million in float32: 96 vectors in 4 GiB, of which 50 are wanted; and no product is made in vain."""
    made: list[int] = []

    def track(v: Tensor) -> Tensor:
        made.append(len(v))
        return v * torch.linspace(0, 1, len(v)) ** 8

    found = largest_eigenpairs(track, start(2_000, torch.float32), 50, tolerance=1e-3, memory=96 * 2_000 * 4)
    assert found.vectors.untyped_storage().nbytes() == 96 * 2_000 * 4
    assert found.products == len(made)
    assert (found.residuals <= 1e-3 * found.values).all()


def test_multiple_eigenvalues_end_in_an_invariant_space() -> None:
    """Two eigenvalues span a Krylov space of two dimensions; other directions are drawn until there are k."""
    eigenvalues = torch.cat([torch.full((3,), 2.0), torch.full((37,), 1.0)]).double()
    product, _ = rotated(eigenvalues)
    found = largest_eigenpairs(product, start(40), 6, tolerance=1e-9)
    np.testing.assert_allclose(found.values, eigenvalues[:6], atol=1e-9)
    again = largest_eigenpairs(product, start(40), 6, tolerance=1e-9)
    assert torch.equal(found.vectors, again.vectors)


def test_products_that_are_not_finite_are_one_line() -> None:
    with pytest.raises(UserError, match="is not finite"):
        largest_eigenpairs(lambda v: v / 0, start(), 3, tolerance=1e-3)


def test_nothing_has_eigenvalue_zero() -> None:
    found = largest_eigenpairs(torch.zeros_like, start(), 3, tolerance=1e-3)
    assert found.values.tolist() == found.residuals.tolist() == [0, 0, 0]


def test_a_basis_is_orthonormal_in_single_precision() -> None:
    product, _ = rotated(torch.logspace(-6, 1, SIZE))
    krylov = Krylov(product, start(dtype=torch.float32), 100)
    while not krylov.is_full:
        krylov.grow()
    basis = krylov.combine(np.eye(krylov.size)).double()
    assert (basis @ basis.T - torch.eye(100)).abs().max() < 2e-6


def test_gauss_quadrature_is_exact_for_polynomials() -> None:
    """m nodes for moments up to 2m − 1, and no further."""
    eigenvalues = torch.linspace(-1, 2, SIZE, dtype=torch.float64)
    product, basis = rotated(eigenvalues)
    nodes, weights = gauss_quadrature(product, start(), 5)
    squares = (basis.T @ start() / start().norm()) ** 2
    exact = [float((squares * eigenvalues**p).sum()) for p in range(11)]
    moments = [float((weights * nodes**p).sum()) for p in range(11)]
    np.testing.assert_allclose(moments[:10], exact[:10], rtol=1e-10)
    assert abs(moments[10] / exact[10] - 1) > 1e-6


def test_power_iteration_is_right_where_gaps_are_wide() -> None:
    eigenvalues = torch.cat([torch.tensor([1000.0, 100.0, -10.0]), torch.linspace(-0.01, 0.01, SIZE - 3)]).double()
    product, _ = rotated(eigenvalues)
    found = deflated_power_iteration(product, start(), 3)
    np.testing.assert_allclose(found.values, [1000, 100, -10], rtol=1e-4)
    assert found.products <= 3 * 20 + 3


def test_power_iteration_stops_after_its_steps_however_wrong() -> None:
    """Where gaps are narrow its estimates are too low, which its residuals tell; Lanczos is right."""
    eigenvalues = torch.linspace(0.5, 1, SIZE, dtype=torch.float64).flip(0)
    product, _ = rotated(eigenvalues)
    found = deflated_power_iteration(product, start(), 2, steps=5)
    assert found.products == 2 * 5 + 2
    assert (found.values < eigenvalues[:2].numpy() - 0.02).all()
    assert (found.residuals > 0.02).all()
    assert deflated_power_iteration(torch.zeros_like, start(), 2).values.tolist() == [0, 0]
