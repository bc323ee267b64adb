"""The spectrum is that of the dense Hessian, reproducibly, and nothing else is touched."""

import math
import warnings

import numpy as np
import pyhessian
import pytest
import torch
from curvlinops import HessianLinearOperator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev

from analysis.hessian import Spectrum, hessian_product, top_eigenvalues
from bench.engine.objective import Objective
from bench.errors import UserError
from tests.conftest import in_batches

Samples = tuple[Tensor, Tensor]


def dense_hessian(objective: Objective, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """∇²F(w) `[P, P]`, in chunks: all rows at once would need P times the memory of one."""
    # vmap refuses a layout that may be read as channels-last, as one-channel images often may.
    x = x.clone(memory_format=torch.contiguous_format)

    def loss(flat: Tensor) -> Tensor:
        logits = functional_call(objective.module, objective.layout.split(flat), (x,))
        return nn.functional.cross_entropy(logits, y)

    return jacrev(grad(loss), chunk_size=32)(w)


def spectrum(hessian: Tensor) -> NDArray[np.float64]:
    return np.linalg.eigvalsh(hessian.numpy())[::-1]


def test_top_five_of_logistic_regression_are_those_of_the_dense_hessian(logistic: Objective, digits: Samples) -> None:
    w = logistic.initial()
    exact = spectrum(dense_hessian(logistic, w, *digits))
    found = top_eigenvalues(logistic, w, [digits], tolerance=1e-10)
    np.testing.assert_allclose(found.eigenvalues, exact[:5], rtol=1e-6)
    assert found.converged
    assert found.ratio() == pytest.approx(exact[0] / exact[4], rel=1e-6)


def test_groupnorm_network_agrees_with_dense_hessian_and_pyhessian(
    cnn: Objective, trained: Tensor, digits: Samples
) -> None:
    x, y = digits[0][:40], digits[1][:40]
    exact = spectrum(dense_hessian(cnn, trained, x, y))
    found = top_eigenvalues(cnn, trained, [(x, y)], tolerance=1e-10)
    np.testing.assert_allclose(found.eigenvalues, exact[:5], rtol=1e-6)
    # The defaults, in batches, are good to far better than anyone plots.
    np.testing.assert_allclose(top_eigenvalues(cnn, trained, in_batches(x, y, 16)).eigenvalues, exact[:5], rtol=1e-4)

    # PyHessian reads .grad without clearing it first, leaves it filled, and sets eval mode.
    for parameter in cnn.parameters:
        parameter.grad = None
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")  # its backward(create_graph=True) warns of the cycle it makes
        torch.manual_seed(0)
        second_opinion = pyhessian.hessian(
            cnn.load(trained), nn.CrossEntropyLoss(), data=(x, y), cuda=False
        ).eigenvalues(tol=1e-6)[0][0]
    assert second_opinion == pytest.approx(exact[0], rel=1e-3)


def test_residuals_are_those_of_the_returned_pairs(
    logistic: Objective, digits: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """‖Hv − λv‖ against the dense Hessian, for pairs (out of order) that are far from eigenpairs."""
    w = logistic.initial()
    values, vectors = np.array([1.0, 3.0]), np.eye(len(w))[:, :2]
    monkeypatch.setattr("analysis.hessian.eigsh", lambda *_, **__: (values, vectors))
    found = top_eigenvalues(logistic, w, [digits], k=2)
    exact = np.linalg.norm(dense_hessian(logistic, w, *digits).numpy()[:, :2] - values * vectors, axis=0)
    assert found.eigenvalues == (3, 1)
    np.testing.assert_allclose(found.residuals, exact[::-1], rtol=1e-10)
    assert found.products == 2


def test_product_equals_curvlinops_where_that_works(logistic: Objective, digits: Samples) -> None:
    w = logistic.initial()
    v = torch.linspace(-1, 1, len(w), dtype=w.dtype)
    data = in_batches(*digits, 25)
    theirs = HessianLinearOperator(
        logistic.load(w), nn.CrossEntropyLoss(), logistic.parameters, data, check_deterministic=False
    )
    for batches in (data, [digits]):
        ours = hessian_product(logistic, w, batches)(v)
        torch.testing.assert_close(ours, theirs @ v)


class Saddle(nn.Module):
    """Logits (½ wᵀAw, 0) for every sample: with label 1 and w = 0 the loss's Hessian is A/2, A diagonal."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(30))

    def forward(self, x: Tensor) -> Tensor:
        curvature = torch.cat([torch.tensor([-100.0]), torch.arange(1.0, 30.0)]).to(self.w)
        logit = 0.5 * (curvature * self.w**2).sum()
        return torch.stack([logit, torch.zeros_like(logit)]).expand(len(x), 2)


def test_large_negative_eigenvalue_is_not_among_the_top() -> None:
    saddle = Objective(Saddle().double())
    x, y = torch.zeros(3, 1).double(), torch.ones(3, dtype=torch.long)
    found = top_eigenvalues(saddle, saddle.initial(), [(x, y)], tolerance=1e-10)
    np.testing.assert_allclose(found.eigenvalues, [14.5, 14.0, 13.5, 13.0, 12.5], rtol=1e-8)


def test_repeats_bitwise_and_leaves_everything_else_alone(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    w_before = trained.clone()
    first = top_eigenvalues(cnn, trained, [digits])
    assert first == top_eigenvalues(cnn, trained, [digits])
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert torch.equal(trained, w_before)
    assert all(p.grad is None and p.requires_grad for p in cnn.parameters)
    assert cnn.full_gradient(trained, [digits]).isfinite().all()
    assert torch.equal(torch.cat([p.detach().reshape(-1) for p in cnn.parameters]), trained)


def test_not_converged_is_reported_not_raised(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    found = top_eigenvalues(cnn, trained, [digits], k=40, tolerance=1e-14, max_restarts=1)
    assert not found.converged
    assert len(found.eigenvalues) == len(found.residuals) == 40
    assert math.isnan(found.eigenvalues[-1])
    known = [value for value in found.eigenvalues if not math.isnan(value)]
    assert known == sorted(known, reverse=True)


def test_diverged_model_has_no_spectrum(cnn: Objective, digits: Samples) -> None:
    found = top_eigenvalues(cnn, torch.full_like(cnn.initial(), math.nan), [digits])
    assert not found.converged
    assert all(map(math.isnan, found.eigenvalues))
    assert math.isnan(found.ratio())


def test_flat_loss_gives_lanczos_nothing_to_converge_to(digits: Samples) -> None:
    """One class: F = 0 everywhere, so Hv = 0 for the start vector already."""
    with torch.random.fork_rng():
        flat = Objective(nn.Sequential(nn.Flatten(), nn.Linear(64, 1)).double())
    found = top_eigenvalues(flat, flat.initial(), [(digits[0], torch.zeros_like(digits[1]))])
    assert not found.converged


def test_ratio_is_missing_where_it_is_not_defined() -> None:
    assert Spectrum((4.0, 2.0), (0.0, 0.0), 9, True).ratio(2) == 2
    assert math.isnan(Spectrum((4.0, 2.0), (0.0, 0.0), 9, True).ratio())
    assert math.isnan(Spectrum((4.0, 0.0), (0.0, 0.0), 9, True).ratio(2))


@pytest.mark.parametrize("k", [0, 650])
def test_impossible_number_of_eigenvalues_is_refused(logistic: Objective, digits: Samples, k: int) -> None:
    with pytest.raises(UserError, match="allowed: 1 to 649"):
        top_eigenvalues(logistic, logistic.initial(), [digits], k=k)
