"""Flatness quantities against known bounds, limits and identities."""

import math
import weakref
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedflat.analysis.measures.curvature.hessian import top_eigenvalues
from fedflat.analysis.measures.flatness import (
    Ascent,
    flatness_discrepancy,
    loss_along,
    low_pass_filter,
    random_directions,
    sharpness,
)
from fedflat.bench.engine.objective import Batched, Objective
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import unit
from fedflat.bench.numerics.streams import torch_stream
from tests.analysis.measures.quadratic import Quadratic, drawn, largest_rise
from tests.conftest import in_batches

Samples = tuple[Tensor, Tensor]
# Objectives are pure functions of w, so that examples may share one fixture.
properties = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@properties
@given(rho=st.floats(0, 2))
def test_sharpness_of_a_convex_loss_is_at_least_first_order(logistic: Objective, digits: Samples, rho: float) -> None:
    """F(w + δ) − F(w) ≥ ⟨∇F, δ⟩ = ρ‖∇F(w)‖ by convexity; and exactly 0 at ρ = 0."""
    w = logistic.initial()
    found = sharpness(logistic, w, [digits], rho)
    assert found >= rho * float(logistic.full_gradient(w, [digits]).norm()) - 1e-12
    assert rho > 0 or found == 0


def test_sharpness_has_the_second_order_term(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    """For small ρ the rise beyond ρ‖∇F‖ is ½ρ² uᵀHu ≤ ½ρ²λ_max."""
    rho = 1e-3
    gradient = cnn.full_gradient(trained, [digits])
    beyond = sharpness(cnn, trained, [digits], rho) - rho * float(gradient.norm())
    lambda_max = top_eigenvalues(cnn, trained, [digits]).eigenvalues[0]
    assert 0 < beyond <= 0.5 * rho**2 * lambda_max * 1.01


@pytest.mark.parametrize("rho", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("seed", range(5))
def test_sharpness_of_a_quadratic_is_its_maximum_in_the_ball(rho: float, seed: int) -> None:
    """One step rises by ρ‖g‖ + ½ρ² uᵀHu; many reach the maximum, to 1e-6."""
    quadratic, w, samples = drawn(seed)
    gradient = quadratic.full_gradient(w, [samples])
    direction = gradient / gradient.norm()
    one = rho * float(gradient.norm()) + 0.5 * rho**2 * float(direction @ quadratic.hessian @ direction)
    assert sharpness(quadratic, w, [samples], rho) == pytest.approx(one)
    most = largest_rise(quadratic.hessian, gradient, rho)
    assert sharpness(quadratic, w, [samples], rho, Ascent(steps=200)) == pytest.approx(most, rel=1e-6)
    assert one < most * (1 - 1e-6), "or the two could not be distinguished"


@properties
@given(
    seed=st.integers(0, 100), rho=st.floats(1e-3, 10), steps=st.integers(1, 12), more=st.integers(0, 5),
    step=st.floats(0.05, 5),
)  # fmt: skip
def test_an_ascent_stays_in_the_ball_and_more_steps_lower_nothing(
    seed: int, rho: float, steps: int, more: int, step: float
) -> None:
    quadratic, w, samples = drawn(seed)
    longer = Ascent(steps + more, step)
    points = list(longer.points(quadratic, w, [samples], rho))
    assert len(points) == steps + more
    assert all(float((point - w).norm()) <= rho * (1 + 1e-12) for point in points)
    found, better = (sharpness(quadratic, w, [samples], rho, a) for a in (Ascent(steps, step), longer))
    assert found <= better <= largest_rise(quadratic.hessian, quadratic.full_gradient(w, [samples]), rho) * (1 + 1e-9)


def test_steps_may_be_shorter_than_the_radius() -> None:
    """Two steps of half the radius on a linear-like slope end on the sphere; the first is half way."""
    quadratic, w, samples = drawn(0)
    first, second = Ascent(2, 0.5).points(quadratic, w, [samples], 1e-6)
    assert float((first - w).norm()) == pytest.approx(0.5e-6)
    assert float((second - w).norm()) == pytest.approx(1e-6, rel=1e-6)


def test_many_steps_find_a_sharper_point_of_a_network(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    one, many = (sharpness(cnn, trained, [digits], 1.0, Ascent(steps)) for steps in (1, 15))
    assert many > one > 0


@properties
@given(rho=st.floats(0, 1))
def test_no_discrepancy_when_one_client_holds_everything(logistic: Objective, digits: Samples, rho: float) -> None:
    w = logistic.initial()
    assert flatness_discrepancy(logistic, w, [digits], [(w, [digits])], rho=rho).value == 0


@properties
@given(cuts=st.sets(st.integers(1, 59), min_size=1, max_size=4))
def test_discrepancy_weights_clients_by_their_data(logistic: Objective, digits: Samples, cuts: set[int]) -> None:
    """Clients with any numbers m_i of the 60 samples: |S − Σ (m_i/60) S_i|."""
    x, y = digits
    w = logistic.initial()
    ends = pairwise([0, *sorted(cuts), 60])
    local = [(w + 0.1 * k, in_batches(x[a:b], y[a:b], 20)) for k, (a, b) in enumerate(ends)]
    mean = sum(sum(len(t) for _, t in part) / 60 * sharpness(logistic, model, part, 0.5) for model, part in local)
    expected = abs(sharpness(logistic, w, [digits], 0.5) - mean)
    found = flatness_discrepancy(logistic, w, [digits], local, rho=0.5)
    assert found.value == pytest.approx(expected)
    assert found.value == abs(found.of_global - found.of_local)


def test_discrepancy_of_quadratics_in_closed_form() -> None:
    """Client i's loss is ½‖w − a_i‖²: sharpness in a ball is ρ‖w − a_i‖ + ½ρ², and globally with the mean of the a_i.

    Local models at their minima a_i have ½ρ² each, so Δ_F at w is ρ‖w − Σ (m_i/m) a_i‖. With a_1 = (3, 0), m_1 = 1 and
    a_2 = (0, 4), m_2 = 3: the mean is (¾, 3), and Δ_F at w = 0 is ρ √(9/16 + 9).
    """
    quadratic = Quadratic(torch.eye(2, dtype=torch.float64))
    minima = torch.tensor([[3.0, 0], [0, 4], [0, 4], [0, 4]], dtype=torch.float64)
    labels = torch.zeros(4, dtype=torch.int64)
    # A hair off the minima, where the gradient has a direction.
    local = [(minima[0] + 1e-9, [(minima[:1], labels[:1])]), (minima[1] - 1e-9, in_batches(minima[1:], labels[1:], 2))]
    found = flatness_discrepancy(
        quadratic, torch.zeros(2, dtype=torch.float64), [(minima, labels)], local, rho=0.3, ascent=Ascent(3)
    )
    assert found.of_local == pytest.approx(0.045)
    assert found.value == pytest.approx(0.3 * math.sqrt(9 / 16 + 9))


def test_local_models_are_in_memory_one_at_a_time(logistic: Objective, digits: Samples) -> None:
    """They may be trained while they are requested: each is gone before the next one comes."""
    seen: list[weakref.ref[Tensor]] = []

    def local() -> Iterator[tuple[Tensor, list[Samples]]]:
        for shift in range(5):
            assert sum(reference() is not None for reference in seen) <= 1
            w = logistic.initial() + shift
            seen.append(weakref.ref(w))
            yield w, [digits]
            del w

    flatness_discrepancy(logistic, logistic.initial(), [digits], local(), rho=0.1)
    assert len(seen) == 5


@properties
@given(draws=st.integers(1, 5), seed=st.integers(0, 100))
def test_filter_of_no_width_is_the_loss(logistic: Objective, digits: Samples, draws: int, seed: int) -> None:
    w = logistic.initial()
    value, error = low_pass_filter(logistic, w, [digits], sigma=0, draws=draws, stream=torch_stream(seed, "test"))
    assert value == pytest.approx(logistic.loss(w, [digits]), rel=1e-14)
    assert math.isnan(error) if draws == 1 else error == 0


def test_filter_is_the_mean_over_gaussian_perturbations(logistic: Objective, digits: Samples) -> None:
    """E F(w + ε) = F(w) + ½σ² tr H + O(σ⁴), within four standard errors; tr H from unit vectors."""
    w, sigma = logistic.initial(), 0.02
    x = digits[0]
    probabilities = logistic.logits(w, x).softmax(1)
    # Logistic regression: tr H = mean over samples of (‖x‖² + 1) · Σ_c p_c (1 − p_c).
    trace = float(((x.flatten(1).square().sum(1) + 1) * (probabilities * (1 - probabilities)).sum(1)).mean())
    stream = torch_stream(0, "test")
    value, error = low_pass_filter(logistic, w, [digits], sigma=sigma, draws=400, stream=stream)
    assert abs(value - (logistic.loss(w, [digits]) + 0.5 * sigma**2 * trace)) < 4 * error


@pytest.mark.parametrize("sigma", [0.1, 2.0])
def test_filter_of_a_quadratic_adds_half_the_variance_times_the_trace(sigma: float) -> None:
    """E F(w + σε) = F(w) + ½σ² tr H exactly, whatever σ; within four standard errors of 4,000 draws."""
    quadratic, w, samples = drawn(3)
    expected = quadratic.loss(w, [samples]) + 0.5 * sigma**2 * float(quadratic.hessian.trace())
    value, error = low_pass_filter(quadratic, w, [samples], sigma=sigma, draws=4000, stream=torch_stream(0, "test"))
    assert abs(value - expected) < 4 * error
    assert 0 < error < 0.05 * expected


def test_standard_error_shrinks_with_the_root_of_the_draws(logistic: Objective, digits: Samples) -> None:
    w = logistic.initial()
    few, many = (
        low_pass_filter(logistic, w, [digits], sigma=0.1, draws=n, stream=torch_stream(1, "test")) for n in (50, 800)
    )
    assert many.standard_error == pytest.approx(few.standard_error / 4, rel=0.35)


class Recorder(Objective):
    """Records the points at which the loss is computed."""

    def loss(self, w: Tensor, data: Batched) -> float:
        self.points = [*getattr(self, "points", []), w.clone()]
        return super().loss(w, data)


def random(w: Tensor, draws: int) -> Iterator[Tensor]:
    return random_directions(w, draws, torch_stream(0, "test"))


def test_every_point_lies_at_its_radius_on_one_ray_per_draw(logistic: Objective, digits: Samples) -> None:
    recorder, radii = Recorder(logistic.module), [0.0, 0.5, 15.0]
    w = recorder.initial()
    table = loss_along(recorder, w, [digits], random(w, 3), radii)
    assert list(table.columns) == ["radius", "draw", "loss"]
    assert len(table) == 9
    origin, *points = recorder.points
    assert torch.equal(origin, w)
    assert len(points) == 6  # radius 0 was evaluated once
    offsets = torch.stack(points).view(3, 2, -1) - w
    torch.testing.assert_close(offsets.norm(dim=-1), torch.tensor([[0.5, 15.0]], dtype=w.dtype).expand(3, 2))
    torch.testing.assert_close(offsets[:, 0] * 30, offsets[:, 1])
    assert (table.loss[table.radius == 0] == recorder.loss(w, [digits])).all()


def test_compared_models_share_directions_whatever_was_drawn_before(logistic: Objective, digits: Samples) -> None:
    """The stream is not advanced: a second model, or more radii, sees the same directions."""
    w = logistic.initial()
    first, second = (loss_along(logistic, w, [digits], random(w, 2), radii) for radii in ([1.0], [0.5, 1.0]))
    assert list(first.loss) == list(second.loss[second.radius == 1])


def test_along_the_gradient_of_a_quadratic_the_loss_is_a_parabola() -> None:
    """F(w + r u) = F(w) + r‖g‖ + ½r² uᵀHu for u = g/‖g‖: uphill for r > 0, downhill for small r < 0."""
    quadratic, w, samples = drawn(1)
    gradient = quadratic.full_gradient(w, [samples])
    u = gradient / gradient.norm()
    radii = [-2.0, -0.1, 0.0, 0.1, 2.0]
    table = loss_along(quadratic, w, [samples], [u], radii)
    slope, bend = float(gradient.norm()), float(u @ quadratic.hessian @ u)
    expected = [quadratic.loss(w, [samples]) + r * slope + 0.5 * r**2 * bend for r in radii]
    assert list(table.loss) == pytest.approx(expected)
    assert table.loss[1] < table.loss[2] < table.loss[3]


def test_nothing_depends_on_batches(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    """To 1e-12, in float64; a ragged last batch of 4 among those of 7."""
    whole, parts = [digits], in_batches(*digits, 7)

    def measured(data: Batched) -> list[float]:
        uphill = unit(cnn.full_gradient(trained, data))
        return [
            sharpness(cnn, trained, data, 0.5, Ascent(4)),
            low_pass_filter(cnn, trained, data, sigma=0.1, draws=3, stream=torch_stream(0, "test")).value,
            flatness_discrepancy(cnn, trained, data, [(trained + 0.01, data)], rho=0.5).value,
            *loss_along(cnn, trained, data, [uphill], [-1, 1]).loss,
        ]

    assert measured(parts) == pytest.approx(measured(whole), rel=1e-12)


def test_no_draws_are_refused(logistic: Objective, digits: Samples) -> None:
    with pytest.raises(UserError, match="0 random directions"):
        low_pass_filter(logistic, logistic.initial(), [digits], sigma=1, draws=0, stream=torch_stream(0, "test"))


def test_a_loss_that_is_not_finite_leaves_no_sharpness() -> None:
    """max() would keep a finite value that came before it."""

    class Broken(Quadratic):
        def loss(self, w: Tensor, data: Batched) -> float:
            return math.nan if float(w.norm()) > 2 else super().loss(w, data)

    quadratic = Broken(torch.eye(2, dtype=torch.float64))
    w = torch.tensor([1.0, 0.0], dtype=torch.float64)
    samples = (torch.zeros(1, 2, dtype=torch.float64), torch.zeros(1, dtype=torch.int64))
    assert math.isfinite(sharpness(quadratic, w, [samples], 0.5, Ascent(3)))
    assert math.isnan(sharpness(quadratic, w, [samples], 3.0, Ascent(3, 0.3)))
