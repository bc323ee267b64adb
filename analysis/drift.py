"""How far are the clients' perturbations from the one that the global objective asks for?"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bench.engine.local import Probe
from bench.methods.base import Gradient, norm, unit

Replay = Callable[[int, Probe], object]
"""Trains one client and shows each local step to the probe; the same steps whenever it is called."""


class PerturbationDrift(NamedTuple):
    """Local against virtual global perturbations in one round, in the mean over clients and local steps.

    `drift`: PD, in [0, 1]. `cosine` of the angle between them, in [-1, 1]. `local_norm`: ‖δ_i,k‖. `gradient_norm`: the
    global gradient's norm at the virtual models, in the mean over steps; the global perturbation's own is ρ.
    """

    drift: float
    cosine: float
    local_norm: float
    gradient_norm: float


def perturbation_drift(
    clients: Sequence[int],
    replay: Replay,
    global_gradient: Gradient,
    everybody: Sequence[int] | None = None,
) -> PerturbationDrift:
    """PD of one round: 0 where all perturbations point along the global one, 1 where opposite.

    PD^t = 1/(2KE) Σ_k Σ_i ‖δ_g,k − δ_i,k‖ (FedLESAM, Fan et al. 2024, sec. 4.1) over E local steps of the K `clients`.
    `replay` shows δ_i,k `[P]` and the iterate w_i,k `[P]` at which it was taken; `global_gradient` is ∇F of the global
    objective at the virtual global model, as a function of the mean iterate. Choices made here:

    - perturbations enter by their direction, as PD in [0, 1] asks; a zero one stays zero, and counts ½;
    - δ_g,k is the direction of ∇F for the mean of the w_i,k over `everybody`, who should be all N clients for the
      paper's virtual model; None: over `clients`, a sample of them;
    - where clients make unequal numbers of steps, that mean is over those who still have a step k, and the number of
      (client, step) pairs stands in the place of KE.

    Clients train twice: for the mean iterates, and again to be compared with the gradients that took their place. So E
    vectors `[P]` are in memory, however many clients there are.
    """
    directions, norms = _global_directions(clients if everybody is None else everybody, replay, global_gradient)
    totals, pairs = torch.zeros(3, dtype=torch.float64), 0

    def compare(client: int, step: int, w: Tensor, delta: Tensor) -> None:
        nonlocal totals, pairs
        local, of_global = unit(delta), directions[step]
        found = torch.cat([norm(of_global - local), (of_global @ local).view(1), norm(delta)])
        totals = totals.to(found.device) + found
        pairs += 1

    for client in clients:
        replay(client, compare)
    distance, cosine, length = (totals / pairs).tolist()
    return PerturbationDrift(distance / 2, cosine, length, sum(norms) / len(norms))


def _global_directions(
    clients: Sequence[int], replay: Replay, global_gradient: Gradient
) -> tuple[list[Tensor], list[float]]:
    """For each local step, the global gradient's direction `[P]` for the mean iterate of the clients, and its norm."""
    sums: list[Tensor] = []
    counts: list[int] = []

    def add(client: int, step: int, w: Tensor, delta: Tensor) -> None:
        if step == len(sums):
            sums.append(torch.zeros_like(w))
            counts.append(0)
        sums[step] += w
        counts[step] += 1

    for client in clients:
        replay(client, add)
    norms = []
    for step, count in enumerate(counts):
        gradient = global_gradient(sums[step] / count)
        norms.append(float(norm(gradient)))
        sums[step] = unit(gradient)  # in the place of the sum, which is not needed any more
    return sums, norms
