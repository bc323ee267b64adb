"""How the loss rises around a model: at worst, on average, along its gradient, and in random directions."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan, sqrt
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from fedflat.analysis.measures.directions import gaussian_directions
from fedflat.analysis.measures.forward_passes import Losses
from fedflat.bench.engine.objective import Batched, Objective
from fedflat.bench.methods.base import along, norm, unit


class MonteCarloMean(NamedTuple):
    """A Monte Carlo mean and its standard error (NaN for a single draw)."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class Ascent:
    """Projected gradient ascent in a ball of radius ρ around w, from its centre:

    δ_{k+1} = Π(δ_k + s ρ ∇F(w + δ_k)/‖∇F(w + δ_k)‖), where Π scales vectors longer than ρ to the length ρ.

    There are `steps` steps; each has the length s = `step` in units of ρ. One step of length ρ is SAM's perturbation.
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

    def description(self, rho: float) -> str:
        """The ascent in words, for captions."""
        if self.steps == 1:
            return f"one ascent step of length {min(self.step, 1) * rho:g}"
        return (
            f"best of {self.steps} projected ascent steps of length {self.step * rho:g} in the ball of radius {rho:g}"
        )

    @property
    def description_for_radii(self) -> str:
        """The ascent in words, for captions of sharpness at several radii."""
        if self.steps == 1:
            return f"one ascent step, {min(self.step, 1):g} × the radius long"
        return f"best of {self.steps} projected ascent steps, each {self.step:g} × the radius long"


ONE_STEP = Ascent()


def sharpness(objective: Objective, w: Tensor, data: Batched, rho: float, ascent: Ascent = ONE_STEP) -> float:
    """max over ‖δ‖ ≤ ρ of F(w + δ) − F(w), estimated by the best point of the ascent; F over all data, w `[P]`.

    One step maximises the first-order expansion (Foret et al. 2021, eq. 2). The value is always a lower bound of the
    maximum. It can be negative where the expansion fails, as at a minimum of F, where the gradient is rounding noise.
    On a convex quadratic, steps of length ρ converge linearly to the maximum. NaN if the loss at any point is NaN.
    Batch sizes change the value by at most 1e-12·F in float64 (1e-5·F in float32).
    """
    centre = objective.loss(w, data)
    rises = [objective.loss(point, data) - centre for point in ascent.points(objective, w, data, rho)]
    return next(filter(isnan, rises), max(rises))


class FlatnessDiscrepancy(NamedTuple):
    """Δ_F = |`of_global` − `of_local`|: sharpness of the global model, and weighted mean of the local models'."""

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
    """Δ_F, the difference between the global model's sharpness and its clients' (FedGF, Lee & Yoon 2024, eq. 7).

    |sharpness of `w_global` `[P]` on the global data − Σ_i (m_i/m) sharpness of w_i `[P]` on client i's own data|, with
    m_i samples at client i and m in total. `local` yields the pairs (w_i, client i's data) and is iterated once, so
    that only one local model needs to be in memory. See `sharpness` for the estimate of each maximum and its errors.
    """
    of_local, samples = 0.0, 0
    for w, data in local:
        size = sum(len(y) for _, y in data)
        samples += size
        of_local += size / samples * (sharpness(objective, w, data, rho, ascent) - of_local)  # a running mean
    of_global = sharpness(objective, w_global, global_data, rho, ascent)
    return FlatnessDiscrepancy(abs(of_global - of_local), of_global, of_local)


def low_pass_filter(
    objective: Losses,
    w: Tensor,
    data: Batched,
    *,
    sigma: float,
    draws: int,
    stream: torch.Generator,
    track: Callable[[Iterable[Tensor]], Iterable[Tensor]] = iter,
) -> MonteCarloMean:
    """LPF: the mean of F(w + ε) over ε ~ N(0, σ²I), by `draws` Monte Carlo draws (Bisla et al. 2022).

    The stream is not advanced: equal streams give every model the same draws. `track` yields the draws unchanged, and
    may report progress. Batch sizes change the estimate only by rounding.
    """
    losses = [objective.loss(w + sigma * noise, data) for noise in track(gaussian_directions(w, draws, stream))]
    error = statistics.stdev(losses) / sqrt(draws) if draws > 1 else float("nan")
    return MonteCarloMean(statistics.fmean(losses), error)


def random_directions(w: Tensor, draws: int, stream: torch.Generator) -> Iterator[Tensor]:
    """`draws` uniformly random unit vectors `[P]`, one at a time. The stream is not advanced."""
    return map(unit, gaussian_directions(w, draws, stream))


def loss_along(
    objective: Losses, w: Tensor, data: Batched, directions: Iterable[Tensor], radii: Sequence[float]
) -> pd.DataFrame:
    """F(w + r u) for each unit direction u `[P]` at every radius r: columns radius, draw (the index of u), loss.

    FedGF (Figures 5, 9 and 14) plots the loss against radii from 0 to 15 and does not state the directions. FedFlat
    uses uniformly random directions or the gradient's direction, in which negative radii are downhill.
    """
    at_model = objective.loss(w, data)
    rows = [
        (radius, draw, objective.loss(w + radius * direction, data) if radius else at_model)
        for draw, direction in enumerate(directions)
        for radius in radii
    ]
    return pd.DataFrame(rows, columns=["radius", "draw", "loss"])
