"""Spectral density and trace against the eigenvalues themselves."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from fedflat.analysis.measures.curvature.hessian import hessian_product
from fedflat.analysis.measures.curvature.spectral_density import Density, spectral_density
from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError
from tests.analysis.measures.test_hessian import dense_hessian, spectrum

Samples = tuple[Tensor, Tensor]


def integral(density: Density, low: float = -np.inf, high: float = np.inf) -> float:
    inside = (density.eigenvalue >= low) & (density.eigenvalue <= high)
    return float(np.trapezoid(density.density[inside], density.eigenvalue[inside]))


def test_a_diagonal_matrix_has_its_trace_from_any_signs() -> None:
    """v² = 1 in each coordinate, so vᵀDv is the trace for every v, and its standard error is zero."""
    diagonal = torch.linspace(-1, 3, 200, dtype=torch.float64)
    found = spectral_density(lambda v: diagonal * v, diagonal, probes=range(3), steps=20)
    assert found.trace == pytest.approx(200)
    assert found.trace_stderr == pytest.approx(0, abs=1e-9)
    assert integral(found) == pytest.approx(1, abs=1e-6)


def test_density_is_that_of_the_dense_hessian(logistic: Objective, digits: Samples) -> None:
    """Integral 1; the mass of every tenth of the range as in a histogram; the trace within its standard error."""
    w = logistic.initial()
    exact = spectrum(dense_hessian(logistic, w, *digits))
    found = spectral_density(hessian_product(logistic, w, [digits]), w, probes=range(12), steps=60)
    assert integral(found) == pytest.approx(1, abs=1e-6)
    low, high = float(exact.min()), float(exact.max())
    assert found.eigenvalue[0] < low < high < found.eigenvalue[-1]
    edges = np.linspace(low - 5 * found.sigma, high + 5 * found.sigma, 11)
    histogram = np.histogram(exact, edges)[0] / len(exact)
    masses = [integral(found, *pair) for pair in pairwise(edges)]
    np.testing.assert_allclose(masses, histogram, atol=0.015)
    assert found.trace == pytest.approx(exact.sum(), abs=3 * found.trace_stderr)
    assert 0 < found.trace_stderr < 0.2 * exact.sum()
    # What lies alone stands out with the height of one eigenvalue, up to the error of twelve random vectors.
    top = found.density[np.abs(found.eigenvalue - high).argmin()]
    assert 0.3 * found.single < top < 3 * found.single


def test_standard_errors_shrink_with_the_root_of_the_vectors() -> None:
    matrix = torch.randn(150, 150, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = matrix + matrix.T
    few, many = (spectral_density(lambda v: matrix @ v, matrix[0], probes=range(n), steps=30) for n in (20, 320))
    assert many.trace_stderr == pytest.approx(few.trace_stderr / 4, rel=0.5)
    assert abs(many.trace - float(matrix.trace())) < 4 * many.trace_stderr


def test_vectors_are_keyed_by_seed_and_number() -> None:
    matrix = torch.randn(60, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = matrix + matrix.T

    def trace(probes: list[int], seed: int = 0) -> float:
        return spectral_density(lambda v: matrix @ v, matrix[0], probes=probes, steps=5, seed=seed).trace

    assert trace([0, 1]) == trace([0, 1]) == pytest.approx(trace([1, 0]))
    assert trace([0, 1]) != trace([0, 2])
    assert trace([0, 1]) != trace([0, 1], seed=1)


def test_a_flat_loss_has_all_its_mass_at_zero() -> None:
    found = spectral_density(torch.zeros_like, torch.zeros(30).double(), probes=range(2), steps=10)
    assert (found.trace, found.trace_stderr) == (0, 0)
    assert integral(found) == pytest.approx(1, abs=1e-6)
    assert abs(found.eigenvalue[found.density.argmax()]) < found.sigma


def test_more_vectors_than_memory_holds_are_refused() -> None:
    with pytest.raises(UserError, match=r"steps = 80: .* \(allowed: 1 to 25\)"):
        spectral_density(torch.zeros_like, torch.zeros(1000), probes=range(2), memory=25 * 4000)
