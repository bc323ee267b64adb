"""The spectrum is that of the dense Hessian, reproducibly, and nothing else is touched."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from curvlinops import HessianLinearOperator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev

from fedflat.analysis.measures.curvature.hessian import TopEigenvalues, hessian_product, in_format, top_eigenvalues
from fedflat.analysis.measures.curvature.lanczos import largest_eigenpairs
from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError
from tests.benchmarks.machine import resident_memory_mib
from tests.benchmarks.workload import Workload
from tests.conftest import in_batches
from tests.tiers import thorough

pytestmark = pytest.mark.long

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


def test_eigenpairs_of_a_groupnorm_network_are_those_of_the_dense_hessian(
    cnn: Objective, trained: Tensor, digits: Samples
) -> None:
    """Five eigenvalues to 1e-9; fifty to 1e-5, with eigenvectors to 1e-4 and residuals as measured with the matrix."""
    x, y = digits[0][:40], digits[1][:40]
    hessian = dense_hessian(cnn, trained, x, y)
    values, vectors = np.linalg.eigh(hessian.numpy())
    few = top_eigenvalues(cnn, trained, [(x, y)], tolerance=1e-10)
    np.testing.assert_allclose(few.eigenvalues, values[::-1][:5], rtol=1e-9)
    # The defaults, in batches, are good to far better than anyone plots.
    by_default = top_eigenvalues(cnn, trained, in_batches(x, y, 16))
    np.testing.assert_allclose(by_default.eigenvalues, values[::-1][:5], rtol=1e-5)

    start = torch.randn(len(trained), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = largest_eigenpairs(hessian_product(cnn, trained, in_batches(x, y, 16)), start, 50, tolerance=1e-6)
    np.testing.assert_allclose(found.values, values[::-1][:50], rtol=1e-5)
    overlap = np.abs((found.vectors.numpy() * vectors.T[::-1][:50]).sum(axis=1))
    assert np.sqrt(2 - 2 * np.minimum(overlap, 1)).max() < 1e-4
    left = found.vectors @ hessian - torch.from_numpy(found.values)[:, None] * found.vectors
    np.testing.assert_allclose(found.residuals, left.norm(dim=1), rtol=1e-4, atol=1e-12)
    assert (found.residuals <= 1e-6 * np.abs(found.values)).all()


def test_batches_of_any_size_give_the_same(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    """Up to rounding, with a ragged last batch: 1e-10 in float64, 1e-4 in float32."""
    for name, tolerance in (("float64", 1e-10), ("float32", 1e-4)):
        given = [in_format(cnn, trained, in_batches(*digits, size), name) for size in (60, 25, 7)]
        whole, *others = (top_eigenvalues(*problem, tolerance=1e-6).eigenvalues for problem in given)
        for other in others:
            np.testing.assert_allclose(other, whole, rtol=tolerance)


def test_formats_agree_and_leave_the_model_as_it_is(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    assert in_format(cnn, trained, [digits], "float64") == (cnn, trained, [digits])
    single, w, data = in_format(cnn, trained, [digits], "float32")
    assert (single.dtype, w.dtype, len(data), cnn.dtype) == (torch.float32, torch.float32, 1, torch.float64)
    v = torch.linspace(-1, 1, len(w), dtype=torch.float64)
    exact = hessian_product(cnn, trained, [digits])(v)
    found = hessian_product(single, w, data)(v.float())
    assert (found - exact).norm() < 1e-5 * exact.norm()


def test_retained_graphs_change_nothing(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    v, data = torch.linspace(-1, 1, len(trained), dtype=torch.float64), in_batches(*digits, 25)
    passed: list[int] = []
    hook = cnn.module.register_forward_hook(lambda *_: passed.append(1))
    products, passes = [], []
    for room in (0, 2**20, 2**31):
        product = hessian_product(cnn, trained, data, room)
        passed.clear()
        products += [product(v), product(v)]
        passes.append(len(passed))
    hook.remove()
    assert all(torch.equal(product, products[0]) for product in products)
    assert passes[0] == 6
    assert passes[2] == 0
    assert 0 < passes[1] < 6, "a room for one or two of the three batches"


def test_product_is_symmetric(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    product = hessian_product(cnn, trained, in_batches(*digits, 25))
    u, v = torch.randn(2, len(trained), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert float(u @ product(v)) == pytest.approx(float(v @ product(u)), rel=1e-10)


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
    # The estimator of published numbers looks for the largest modulus, and meets it at once.
    published = top_eigenvalues(saddle, saddle.initial(), [(x, y)], 1, estimator="power")
    assert published.eigenvalues[0] == pytest.approx(-50, rel=1e-3)


def test_published_estimator_is_near_for_the_first_and_says_how_far(
    cnn: Objective, trained: Tensor, digits: Samples
) -> None:
    exact = top_eigenvalues(cnn, trained, [digits], tolerance=1e-8)
    published = top_eigenvalues(cnn, trained, [digits], estimator="power")
    assert published.eigenvalues[0] == pytest.approx(exact.eigenvalues[0], rel=0.02)
    assert published.products <= 5 * 20 + 5
    assert not published.converged
    assert published.within_tolerance == tuple(
        r <= 1e-3 * abs(v) for v, r in zip(published.eigenvalues, published.residuals, strict=True)
    )
    more = top_eigenvalues(cnn, trained, [digits], 1, estimator="power", steps=500)
    assert abs(more.eigenvalues[0] - exact.eigenvalues[0]) <= abs(published.eigenvalues[0] - exact.eigenvalues[0])


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
    found = top_eigenvalues(cnn, trained, [digits], k=40, tolerance=1e-14, max_products=45)
    assert not found.converged
    assert found.products == 45 + 40
    assert list(found.eigenvalues) == sorted(found.eigenvalues, reverse=True)
    assert not found.within_tolerance[-1]
    assert found.residuals[-1] > found.residuals[0]


def test_diverged_model_has_no_spectrum(cnn: Objective, digits: Samples) -> None:
    found = top_eigenvalues(cnn, torch.full_like(cnn.initial(), math.nan), [digits])
    assert not found.converged
    assert all(map(math.isnan, found.eigenvalues))
    assert math.isnan(found.ratio())


def test_flat_loss_has_no_curvature(digits: Samples) -> None:
    """One class: F = 0 everywhere, so Hv = 0."""
    with torch.random.fork_rng():
        flat = Objective(nn.Sequential(nn.Flatten(), nn.Linear(64, 1)).double())
    found = top_eigenvalues(flat, flat.initial(), [(digits[0], torch.zeros_like(digits[1]))])
    assert found.eigenvalues == found.residuals == (0,) * 5
    assert math.isnan(found.ratio())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_eigenvalue_of_zero_counts_as_exact(dtype: torch.dtype, digits: Samples) -> None:
    """Shifting the weights of all classes by one vector changes no loss, so zeros are among the 20 largest."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Objective(nn.Linear(8, 3).to(dtype))
    data = [(digits[0].flatten(1)[:, :64:8].to(dtype), digits[1] % 3)]
    found = top_eigenvalues(model, model.initial(), data, 20)
    zero = abs(found.eigenvalues[-1])
    assert zero < 10 * torch.finfo(dtype).eps * found.eigenvalues[0] and found.residuals[-1] > 1e-3 * zero
    assert found.converged
    inexact = replace(found, residuals=(*found.residuals[:-1], 1e-3 * found.eigenvalues[0]))
    assert not inexact.within_tolerance[-1] and not inexact.converged


def test_ratio_is_missing_where_it_is_not_defined() -> None:
    assert TopEigenvalues((4.0, 2.0), (0.0, 0.0), 1e-3, 9).ratio(2) == 2
    assert math.isnan(TopEigenvalues((4.0, 2.0), (0.0, 0.0), 1e-3, 9).ratio())
    assert math.isnan(TopEigenvalues((4.0, 0.0), (0.0, 0.0), 1e-3, 9).ratio(2))


@thorough
def test_a_resnet_takes_one_basis_and_one_batch() -> None:
    """Eleven million parameters: the basis is k + 20 vectors where memory is short, and nothing grows with products."""
    objective = Objective(Workload("resnet18_gn", 1, 4, 2).module(0))
    x, y = Workload("resnet18_gn", 1, 4, 2).batch_of(2)
    w = objective.initial()
    assert w.numel() > 11e6
    start = torch.randn(w.numel(), generator=torch.Generator().manual_seed(0))
    before = resident_memory_mib()
    product = hessian_product(objective, w, in_batches(x, y, 1), memory=0)
    found = largest_eigenpairs(product, start, 1, tolerance=1e-2, max_products=24, memory=0)
    vector = 4 * w.numel()
    assert found.vectors.untyped_storage().nbytes() == 21 * vector
    assert resident_memory_mib() - before < (21 + 12) * vector / 2**20
    assert found.values[0] > 0


@pytest.mark.parametrize("k", [0, 650])
def test_impossible_number_of_eigenvalues_is_refused(logistic: Objective, digits: Samples, k: int) -> None:
    with pytest.raises(UserError, match="allowed: 1 to 649"):
        top_eigenvalues(logistic, logistic.initial(), [digits], k=k)


def test_fewer_products_than_eigenvalues_are_refused(logistic: Objective, digits: Samples) -> None:
    with pytest.raises(UserError, match="max_products = 4"):
        top_eigenvalues(logistic, logistic.initial(), [digits], max_products=4)
