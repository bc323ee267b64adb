"""How does the loss rise around a model? At worst, on average, along its gradient, and in random directions."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan, sqrt
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from analysis.measures.directions import gaussian_directions
from bench.engine.objective import Batched, Objective
from bench.methods.base import along, norm, unit


class MonteCarloMean(NamedTuple):
    """A Monte Carlo mean and its standard error (NaN for a single draw)."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class Ascent:
    """Projected gradient ascent in a ball of radius ρ around w, from its centre:

    δ_{k+1} = Π(δ_k + s ρ ∇F(w + δ_k)/‖∇F(w + δ_k)‖), where Π scales what is longer than ρ to the length ρ.

    `steps` are made, each of length s = `step` in units of ρ. One step of length ρ is SAM's. With s = 1, the first
    point lies on the sphere, and more steps only add points.
    """

    steps: int = 1
    step: float = 1.0

    def points(self, objective: Objective, w: Tensor, data: Batched, rho: float) -> Iterator[Tensor]:
        """w + δ_1, w + δ_2, ... `[P]`, one at a time."""
        delta = torch.zeros_like(w)
        for _ in range(self.steps):
            delta = delta + self.step * rho * unit(objective.full_gradient(w + delta, data))
            if float(norm(delta)) > rho:
                delta = along(delta, rho)
            yield w + delta

    def words(self, rho: float) -> str:
        """For captions."""
        if self.steps == 1:
            return f"one ascent step of length {min(self.step, 1) * rho:g}"
        return (
            f"best of {self.steps} projected ascent steps of length {self.step * rho:g} in the ball of radius {rho:g}"
        )

    @property
    def words_for_radii(self) -> str:
        """The same for balls of any radius."""
        if self.steps == 1:
            return f"one ascent step, {min(self.step, 1):g} × the radius long"
        return f"best of {self.steps} projected ascent steps, each {self.step:g} × the radius long"


ONE_STEP = Ascent()


def sharpness(objective: Objective, w: Tensor, data: Batched, rho: float, ascent: Ascent = ONE_STEP) -> float:
    """max over ‖δ‖ ≤ ρ of F(w + δ) − F(w), F over all of the data, w `[P]`: the best point of the ascent.

    One step maximises the first-order expansion (Foret et al. 2021, eq. 2). In any case the value is a lower bound of
    the maximum, and can be negative where that expansion fails: at a minimum of the full loss the gradient is rounding
    noise. On a convex quadratic, steps of length ρ converge to the maximum linearly. NaN if any loss on the way is, and
    the same for any batch size to 1e-12 of F in float64 (1e-5 in float32).
    """
    centre = objective.loss(w, data)
    rises = [objective.loss(point, data) - centre for point in ascent.points(objective, w, data, rho)]
    return next(filter(isnan, rises), max(rises))


class FlatnessDiscrepancy(NamedTuple):
    """Δ_F = |`of_global` − `of_local`|: sharpness of the global model, and the weighted mean of the local models'."""

    value: float
    of_global: float
    of_local: float


def flatness_discrepancy(
    objective: Objective,
    w_global: Tensor,
    global_data: Batched,
    local: Iterable[tuple[Tensor, Batched]],
    *,
    rho: float,
    ascent: Ascent = ONE_STEP,
) -> FlatnessDiscrepancy:
    """Δ_F: how far the global model's sharpness is from its clients' (FedGF, Lee & Yoon 2024, eq. 7).

    |sharpness of `w_global` `[P]` on the global data − Σ_i (m_i/m) sharpness of w_i `[P]` on client i's own data|, with
    m_i samples at client i and m in all. `local` has the pairs (w_i, client i's data); it is passed over once, so that
    one local model is in memory at a time if it is a generator. `sharpness` states how each maximum is estimated, and
    how exact it is.
    """
    of_local, samples = 0.0, 0
    for w, data in local:
        size = sum(len(y) for _, y in data)
        samples += size
        of_local += size / samples * (sharpness(objective, w, data, rho, ascent) - of_local)  # a running mean
    of_global = sharpness(objective, w_global, global_data, rho, ascent)
    return FlatnessDiscrepancy(abs(of_global - of_local), of_global, of_local)


def low_pass_filter(
    objective: Objective,
    w: Tensor,
    data: Batched,
    *,
    sigma: float,
    draws: int,
    stream: torch.Generator,
    track: Callable[[Iterable[Tensor]], Iterable[Tensor]] = iter,
) -> MonteCarloMean:
    """LPF: the mean of F(w + ε) over ε ~ N(0, σ²I), by `draws` Monte Carlo draws (Bisla et al. 2022).

    The stream is read, not advanced: models that are compared share their draws when given equal streams. `track`
    sees the draws pass, to tell how many are done. The estimate moves with the batch size by rounding alone.
    """
    losses = [objective.loss(w + sigma * noise, data) for noise in track(gaussian_directions(w, draws, stream))]
    error = statistics.stdev(losses) / sqrt(draws) if draws > 1 else float("nan")
    return MonteCarloMean(statistics.fmean(losses), error)


def random_directions(w: Tensor, draws: int, stream: torch.Generator) -> Iterator[Tensor]:
    """`draws` uniformly random unit vectors `[P]`, one at a time. The stream is read, not advanced."""
    return map(unit, gaussian_directions(w, draws, stream))


def loss_along(
    objective: Objective, w: Tensor, data: Batched, directions: Iterable[Tensor], radii: Sequence[float]
) -> pd.DataFrame:
    """F(w + r u) for each unit direction u `[P]` at every radius r: columns radius, draw (that of u), loss.

    FedGF (figures 5, 9 and 14) plots the loss against the radius and speaks of radii from 0 to 15, but not of
    directions. Uniformly random ones and the gradient's own are this project's readings; along the gradient, a
    negative radius is downhill.
    """
    at_model = objective.loss(w, data)
    rows = [
        (radius, draw, objective.loss(w + radius * direction, data) if radius else at_model)
        for draw, direction in enumerate(directions)
        for radius in radii
    ]
    return pd.DataFrame(rows, columns=["radius", "draw", "loss"])
