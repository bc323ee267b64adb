"""How far are the clients' perturbations from the one that the global objective asks for?"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bench.methods.base import Gradient, norm, unit


def perturbation_drift(
    local_deltas: Sequence[Tensor], local_models: Sequence[Tensor], global_gradient: Gradient
) -> float:
    """PD of one round, in [0, 1]: 0 where all perturbations point along the global one, 1 where opposite.

    PD^t = 1/(2KE) Σ_k Σ_i ‖δ_g,k − δ_i,k‖ (FedLESAM, Fan et al. 2024, sec. 4.1) over E local steps of K
    clients. `local_deltas` and `local_models` hold, for each client, δ_i,k and the iterate w_i,k at which it
    was taken, both `[steps, P]`; `global_gradient` is ∇F of the global objective. Choices made here:

    - perturbations enter by their direction, as PD in [0, 1] asks; a zero one stays zero, and counts ½;
    - δ_g,k is the direction of ∇F at the mean of the clients' w_i,k, the paper's virtual global model for a
      server step size of 1, over the clients that trained in this round;
    - where clients make unequal numbers of steps, that mean is over the clients that still have a step k, and
      the number of (client, step) pairs stands in the place of KE.
    """
    total, pairs = 0.0, 0
    for k in range(max(len(deltas) for deltas in local_deltas)):
        still = [i for i, deltas in enumerate(local_deltas) if k < len(deltas)]
        deltas = torch.stack([local_deltas[i][k] for i in still])
        virtual_model = torch.stack([local_models[i][k] for i in still]).mean(0)
        total += float(norm(unit(global_gradient(virtual_model)) - unit(deltas)).sum())
        pairs += len(still)
    return total / (2 * pairs)
