"""The package PyHessian as an estimator: right if its tolerance is small, repeatable, and without side effects."""

import warnings

import numpy as np
import pyhessian
import pytest
import torch
from torch import Tensor, nn

from fedflat.analysis.measures.curvature.hessian import TopEigenvalues, top_eigenvalues
from fedflat.bench.engine.objective import Objective
from tests.analysis.measures.progress import Progress
from tests.analysis.measures.test_hessian import Saddle, dense_hessian, spectrum
from tests.conftest import in_batches

Samples = tuple[Tensor, Tensor]


def by_pyhessian(objective: Objective, w: Tensor, data: list[Samples], k: int = 5, **options: float) -> TopEigenvalues:
    return top_eigenvalues(objective, w, data, k, estimator="pyhessian", **options)


@pytest.fixture
def few(digits: Samples) -> Samples:
    return digits[0][:20], digits[1][:20]


def test_a_small_tolerance_gives_the_spectrum_of_the_dense_hessian(
    cnn: Objective, trained: Tensor, few: Samples
) -> None:
    """In batches of unequal size. All values are too small by 2e-6, from the package's normalisation."""
    exact = spectrum(dense_hessian(cnn, trained, *few))
    found = by_pyhessian(cnn, trained, in_batches(*few, 15), 3, iterations=300, change=1e-6)
    np.testing.assert_allclose(found.eigenvalues, exact[:3], rtol=1e-3)
    assert found.eigenvalues[0] < exact[0] * (1 - 1e-6)


def test_its_defaults_are_those_of_the_package_and_less_exact(cnn: Objective, trained: Tensor, few: Samples) -> None:
    """Residuals show it: each is larger than Lanczos's, and most are above the tolerance that Lanczos reaches."""
    found, exact = by_pyhessian(cnn, trained, [few]), top_eigenvalues(cnn, trained, [few])
    assert found.eigenvalues[0] == pytest.approx(exact.eigenvalues[0], rel=0.02)
    assert not found.converged and exact.converged
    assert all(theirs > ours for theirs, ours in zip(found.residuals, exact.residuals, strict=True))
    assert found == by_pyhessian(cnn, trained, [few], iterations=100, change=1e-3)


def test_products_are_counted_and_limited(cnn: Objective, trained: Tensor, few: Samples) -> None:
    """Three products for each of two values, and two that measure the residuals; the track sees the former."""
    progress = Progress()
    found = by_pyhessian(cnn, trained, in_batches(*few, 15), 2, iterations=3, change=1e-30, track=progress.track)
    assert found.products == 3 * 2 + 2
    assert progress == [1, 2, 3, 4, 5, 6]


def test_a_second_call_gives_the_same_although_the_package_alone_doubles_it(
    cnn: Objective, trained: Tensor, few: Samples
) -> None:
    """The package adds to `.grad` for a single batch; here it is given a data loader, for which it clears `.grad`."""
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        model, loss = cnn.load(trained), nn.CrossEntropyLoss()
        estimators = [pyhessian.hessian(model, loss, data=few, cuda=False) for _ in range(2)]
        torch.manual_seed(0)
        alone = [estimator.eigenvalues()[0][0] for estimator in estimators]
    first = by_pyhessian(cnn, trained, [few], 1)
    assert alone[1] == pytest.approx(2 * alone[0], rel=1e-2)
    assert first.eigenvalues[0] == pytest.approx(alone[0], rel=1e-2)
    assert first == by_pyhessian(cnn, trained, [few], 1)


def test_nothing_else_is_changed(cnn: Objective, trained: Tensor, few: Samples) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    w_before = trained.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_pyhessian(cnn, trained, [few], 2)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert torch.equal(trained, w_before)
    assert not cnn.module.training
    assert all(p.grad is None and p.requires_grad for p in cnn.parameters)


def test_a_large_negative_eigenvalue_is_found() -> None:
    saddle = Objective(Saddle().double())
    data = [(torch.zeros(3, 1).double(), torch.ones(3, dtype=torch.long))]
    assert by_pyhessian(saddle, saddle.initial(), data, 1).eigenvalues[0] == pytest.approx(-50, rel=1e-3)
