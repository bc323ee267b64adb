"""Perturbation drift: how far the clients' perturbations are from the perturbation of the global objective."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedflat.bench.engine.local import Probe
from fedflat.bench.methods.base import Gradient, norm, unit

Replay = Callable[[int, Probe], object]
"""Trains one client and calls the probe at each local step; every call repeats the same steps."""


class PerturbationDrift(NamedTuple):
    """The local perturbations of one round compared with the virtual global ones; means over clients and local steps.

    `drift`: PD, in [0, 1]. `cosine` of the angle between local and global perturbation, in [-1, 1]. `local_norm`:
    ‖δ_i,k‖. `gradient_norm`: norm of the global gradient at the virtual global models, mean over steps.
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
    """PD of one round: 0 if all local perturbations have the direction of the global one, 1 if the opposite one.

    PD^t = 1/(2KE) Σ_k Σ_i ‖δ_g,k − δ_i,k‖ (FedLESAM, Fan et al. 2024, sec. 4.1) over E local steps of the K `clients`.
    `replay` passes δ_i,k `[P]` and the iterate w_i,k `[P]` at which it was computed to the probe. `global_gradient` is
    ∇F of the global objective at the virtual global model, as a function of the mean iterate. Choices that the paper
    leaves open:

    - δ_g,k and δ_i,k are normalised here, so that PD is in [0, 1]; a zero perturbation stays zero and counts ½;
    - δ_g,k is the direction of ∇F for the mean of the w_i,k over `everybody`: all N clients for the paper's virtual
      model; None: `clients` only, a sample of them;
    - if clients have unequal numbers of steps, that mean is over the clients that have a step k, and the number of
      (client, step) pairs replaces KE.

    Memory: E vectors `[P]` for any number of clients (sums of the iterates, later replaced by the gradients), and up to
    `memory` bytes of perturbations; clients whose perturbations do not fit train a second time.
    """
    mean_iterates, stored = _MeanIterates(), _Perturbations(memory)

    def remember(client: int, step: int, w: Tensor, delta: Tensor) -> None:
        mean_iterates.add(step, w)
        if client in clients:
            stored.add(client, delta)

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
        if client not in stored.of_client:
            replay(client, compare)
        for step, delta in enumerate(stored.of_client.pop(client, [])):
            compare(client, step, None, delta)
    distance, cosine, length = (totals / pairs).tolist()
    return PerturbationDrift(distance / 2, cosine, length, sum(norms) / len(norms))


class _MeanIterates:
    """For each local step, the sum of the iterates `[P]` of the clients that have this step, and their number."""

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
        """Replace each sum by the direction of the gradient for the mean; returns directions and gradient norms."""
        norms = []
        for step, count in enumerate(self._counts):
            g = gradient(self._sums[step] / count)
            norms.append(float(norm(g)))
            self._sums[step] = unit(g)
        return self._sums, norms


class _Perturbations:
    """The perturbations of the first clients, of as many clients as fit into `memory` bytes."""

    def __init__(self, memory: int) -> None:
        self.of_client: dict[int, list[Tensor]] = {}
        self._left = memory

    def add(self, client: int, delta: Tensor) -> None:
        self._left -= delta.nbytes
        if self._left >= 0:
            self.of_client.setdefault(client, []).append(delta)
        else:
            self.of_client.pop(client, None)
