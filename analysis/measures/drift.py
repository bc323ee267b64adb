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
    memory: int = 2**30,
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

    E vectors `[P]` are in memory, however many clients there are: the sums of the iterates, then the gradients in their
    places. Perturbations are kept up to `memory` bytes; clients whose own do not fit train a second time.
    """
    mean_iterates, kept = _MeanIterates(), _Perturbations(memory)

    def remember(client: int, step: int, w: Tensor, delta: Tensor) -> None:
        mean_iterates.add(step, w)
        if client in clients:
            kept.add(client, delta)

    for client in clients if everybody is None else everybody:
        replay(client, remember)
    directions, norms = mean_iterates.replaced_by_directions(global_gradient)
    totals, pairs = torch.zeros(3, dtype=torch.float64, device=directions[0].device), 0

    def compare(client: int, step: int, w: Tensor | None, delta: Tensor) -> None:
        nonlocal totals, pairs
        local, of_global = unit(delta), directions[step]
        totals += torch.cat([norm(of_global - local), (of_global @ local).view(1), norm(delta)])
        pairs += 1

    for client in clients:
        if client not in kept.of:
            replay(client, compare)
        for step, delta in enumerate(kept.of.pop(client, [])):
            compare(client, step, None, delta)
    distance, cosine, length = (totals / pairs).tolist()
    return PerturbationDrift(distance / 2, cosine, length, sum(norms) / len(norms))


class _MeanIterates:
    """For each local step, the sum of the iterates `[P]` of the clients that have it, and their number."""

    def __init__(self) -> None:
        self._sums: list[Tensor] = []
        self._counts: list[int] = []

    def add(self, step: int, w: Tensor) -> None:
        if step == len(self._sums):
            self._sums.append(torch.zeros_like(w))
            self._counts.append(0)
        self._sums[step] += w
        self._counts[step] += 1

    def replaced_by_directions(self, gradient: Gradient) -> tuple[list[Tensor], list[float]]:
        """The direction of the gradient for each mean, in the place of the sum; and the gradients' norms."""
        norms = []
        for step, count in enumerate(self._counts):
            g = gradient(self._sums[step] / count)
            norms.append(float(norm(g)))
            self._sums[step] = unit(g)
        return self._sums, norms


class _Perturbations:
    """All perturbations of the first clients, of as many as fit into so many bytes."""

    def __init__(self, memory: int) -> None:
        self.of: dict[int, list[Tensor]] = {}
        self._left = memory

    def add(self, client: int, delta: Tensor) -> None:
        self._left -= delta.nbytes
        if self._left >= 0:
            self.of.setdefault(client, []).append(delta)
        else:
            self.of.pop(client, None)
