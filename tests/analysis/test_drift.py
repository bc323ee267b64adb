"""Perturbation drift: by hand, at its ends, and where clients make unequal numbers of steps."""

from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from analysis.drift import perturbation_drift


def vectors(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def identity(w: Tensor) -> Tensor:
    """∇F of F(w) = ½‖w‖²."""
    return w


def test_two_clients_one_step_by_hand() -> None:
    """Mean model (1, 0), so δ_g = (1, 0). δ_1 = (0, 1): distance √2. δ_2 = (1, 0): 0. PD = √2 / (2·2)."""
    deltas = [vectors([0, 1]), vectors([1, 0])]
    models = [vectors([1, 1]), vectors([1, -1])]
    assert perturbation_drift(deltas, models, identity) == pytest.approx(sqrt(2) / 4)


def test_unequal_steps_by_hand() -> None:
    """Client 2 stops after one step.

    Step 0: mean model (2, 0), δ_g = (1, 0); distances 0 and 2. Step 1: client 1 alone at (0, 5), δ_g =
    (0, 1); its δ = (1, 0) is √2 away. Three (client, step) pairs: PD = (0 + 2 + √2) / (2·3).
    """
    deltas = [vectors([1, 0], [1, 0]), vectors([-1, 0])]
    models = [vectors([1, 0], [0, 5]), vectors([3, 0])]
    assert perturbation_drift(deltas, models, identity) == pytest.approx((2 + sqrt(2)) / 6)


def test_zero_perturbation_stays_zero_and_counts_half() -> None:
    assert perturbation_drift([vectors([0, 0])], [vectors([1, 2])], identity) == pytest.approx(0.5)


@given(
    steps=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    scale=st.floats(1e-3, 1e3),
    seed=st.integers(0, 1000),
)
def test_ends_range_and_scale(steps: list[int], scale: float, seed: int) -> None:
    """0 along the global direction, 1 against it, within [0, 1] otherwise, whatever the size of δ."""
    generator = torch.Generator().manual_seed(seed)
    models = [torch.rand(n, 6, generator=generator, dtype=torch.float64) + 0.1 for n in steps]
    deltas = [torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in steps]
    target = vectors([1, -2, 0.5, 0, 3, 1])[0]

    def constant(w: Tensor) -> Tensor:
        return target

    along = [scale * target.expand(n, -1) for n in steps]
    assert perturbation_drift(along, models, constant) == pytest.approx(0, abs=1e-9)
    assert perturbation_drift([-delta for delta in along], models, constant) == pytest.approx(1)
    drift = perturbation_drift(deltas, models, identity)
    assert 0 <= drift <= 1
    scaled = perturbation_drift([scale * delta for delta in deltas], models, identity)
    assert scaled == pytest.approx(drift, rel=1e-8)
