"""Flatness quantities against known bounds, limits and identities."""

import math

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from analysis.flatness import flatness_discrepancy, loss_along_perturbation, low_pass_filter, sharpness
from analysis.hessian import top_eigenvalues
from bench.engine.objective import Batched, Objective
from bench.engine.streams import torch_stream
from bench.errors import UserError
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


@properties
@given(rho=st.floats(0, 1))
def test_no_discrepancy_when_one_client_holds_everything(logistic: Objective, digits: Samples, rho: float) -> None:
    w = logistic.initial()
    assert flatness_discrepancy(logistic, w, [digits], [w], [[digits]], rho=rho) == 0


def test_discrepancy_weights_clients_by_their_data(logistic: Objective, digits: Samples) -> None:
    """Two clients with 15 and 45 samples: |S − (¼ S_1 + ¾ S_2)|."""
    x, y = digits
    w = logistic.initial()
    models, parts = [w + 0.1, w - 0.2], [in_batches(x[:15], y[:15], 4), in_batches(x[15:], y[15:], 20)]
    s1, s2 = (sharpness(logistic, m, part, 0.5) for m, part in zip(models, parts, strict=True))
    expected = abs(sharpness(logistic, w, [digits], 0.5) - (0.25 * s1 + 0.75 * s2))
    assert flatness_discrepancy(logistic, w, [digits], models, parts, rho=0.5) == pytest.approx(expected)


def test_every_local_model_needs_its_data(logistic: Objective, digits: Samples) -> None:
    w = logistic.initial()
    with pytest.raises(ValueError, match="shorter"):
        flatness_discrepancy(logistic, w, [digits], [w, w], [[digits]], rho=0.5)


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


def test_standard_error_shrinks_with_the_root_of_the_draws(logistic: Objective, digits: Samples) -> None:
    w = logistic.initial()
    few, many = (
        low_pass_filter(logistic, w, [digits], sigma=0.1, draws=n, stream=torch_stream(1, "test")) for n in (50, 800)
    )
    assert many.standard_error == pytest.approx(few.standard_error / 4, rel=0.35)


class Recorder(Objective):
    """Remembers where the loss was asked for."""

    def loss(self, w: Tensor, data: Batched) -> float:
        self.asked = [*getattr(self, "asked", []), w.clone()]
        return super().loss(w, data)


def along(objective: Objective, w: Tensor, digits: Samples, radii: list[float]) -> pd.DataFrame:
    return loss_along_perturbation(objective, w, [digits], radii=radii, draws=3, stream=torch_stream(0, "test"))


def test_every_point_lies_at_its_radius_on_one_ray_per_draw(logistic: Objective, digits: Samples) -> None:
    recorder, radii = Recorder(logistic.module), [0.0, 0.5, 15.0]
    w = recorder.initial()
    table = along(recorder, w, digits, radii)
    assert list(table.columns) == ["radius", "draw", "loss"]
    assert len(table) == 9
    origin, *points = recorder.asked
    assert torch.equal(origin, w)
    assert len(points) == 6  # radius 0 was evaluated once
    offsets = torch.stack(points).view(3, 2, -1) - w
    torch.testing.assert_close(offsets.norm(dim=-1), torch.tensor([[0.5, 15.0]], dtype=w.dtype).expand(3, 2))
    torch.testing.assert_close(offsets[:, 0] * 30, offsets[:, 1])
    assert (table.loss[table.radius == 0] == recorder.loss(w, [digits])).all()


def test_compared_models_share_directions_whatever_was_drawn_before(logistic: Objective, digits: Samples) -> None:
    """The stream is not advanced: a second model, or more radii, sees the same directions."""
    w, stream = logistic.initial(), torch_stream(0, "test")
    first, second = (
        loss_along_perturbation(logistic, w, [digits], radii=radii, draws=2, stream=stream)
        for radii in ([1.0], [0.5, 1.0])
    )
    assert list(first.loss) == list(second.loss[second.radius == 1])


def test_no_draws_are_refused(logistic: Objective, digits: Samples) -> None:
    with pytest.raises(UserError, match="0 random directions"):
        low_pass_filter(logistic, logistic.initial(), [digits], sigma=1, draws=0, stream=torch_stream(0, "test"))
