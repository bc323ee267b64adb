"""How does the loss rise around a model? Along its gradient, and in random directions."""

import statistics
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from analysis.directions import gaussian_directions
from bench.engine.objective import Batched, Objective
from bench.methods.base import unit


class Estimate(NamedTuple):
    """A Monte Carlo mean and its standard error (NaN for a single draw)."""

    value: float
    standard_error: float


def sharpness(objective: Objective, w: Tensor, data: Batched, rho: float) -> float:
    """max over ‖δ‖ ≤ ρ of F(w + δ) − F(w), estimated at δ = ρ ∇F(w)/‖∇F(w)‖, F over all of the data.

    This δ maximises the first-order expansion (Foret et al. 2021), so the value is a lower bound of the
    maximum, and can be negative where that expansion fails: at a minimum of the full loss the gradient is
    rounding noise.
    """
    ascent = rho * unit(objective.full_gradient(w, data))
    return objective.loss(w + ascent, data) - objective.loss(w, data)


def flatness_discrepancy(
    objective: Objective,
    w_global: Tensor,
    global_data: Batched,
    local_models: Sequence[Tensor],
    local_data: Sequence[Batched],
    *,
    rho: float,
) -> float:
    """Δ_F: how far the global model's sharpness is from its clients' (FedGF, Lee & Yoon 2024, eq. 7).

    |sharpness of `w_global` `[P]` on the global data − Σ_i (m_i/m) sharpness of w_i `[P]` on client i's own
    data|, with m_i samples at client i and m in all. `sharpness` states how each maximum is estimated.
    """
    sizes = [sum(len(y) for _, y in data) for data in local_data]
    local = sum(
        size / sum(sizes) * sharpness(objective, w, data, rho)
        for w, data, size in zip(local_models, local_data, sizes, strict=True)
    )
    return abs(sharpness(objective, w_global, global_data, rho) - local)


def low_pass_filter(
    objective: Objective,
    w: Tensor,
    data: Batched,
    *,
    sigma: float,
    draws: int,
    stream: torch.Generator,
) -> Estimate:
    """LPF: the mean of F(w + ε) over ε ~ N(0, σ²I), by `draws` Monte Carlo draws (Bisla et al. 2022).

    The stream is read, not advanced: models that are compared share their draws when given equal streams.
    """
    losses = [objective.loss(w + sigma * noise, data) for noise in gaussian_directions(w, draws, stream)]
    error = statistics.stdev(losses) / sqrt(draws) if draws > 1 else float("nan")
    return Estimate(statistics.fmean(losses), error)


def loss_along_perturbation(
    objective: Objective,
    w: Tensor,
    data: Batched,
    *,
    radii: Sequence[float],
    draws: int,
    stream: torch.Generator,
) -> pd.DataFrame:
    """F(w + r u) for `draws` random unit directions u, each at every radius r: columns radius, draw, loss.

    FedGF (figures 5, 9 and 14) plots the loss against the radius and speaks of radii from 0 to 15, but not of
    directions: uniformly random ones are this project's reading. The stream is read, not advanced: models
    that are compared share their directions when given equal streams.
    """
    at_model = objective.loss(w, data)
    rows = [
        (radius, draw, objective.loss(w + radius * direction, data) if radius else at_model)
        for draw, direction in enumerate(map(unit, gaussian_directions(w, draws, stream)))
        for radius in radii
    ]
    return pd.DataFrame(rows, columns=["radius", "draw", "loss"])
