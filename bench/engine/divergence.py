"""When a run counts as diverged: the one definition, for runs, trials of a search and simulations.

A round diverged if afterwards a parameter of the global model is not finite, or a buffer has become so; or if the mean
local loss, or a loss of the evaluated model, is not finite or above 10^10. Guessing among C classes has the loss ln C:
such a model has learned nothing, although float32 can still store it. Training ends with a round that diverged.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedflat.bench.metrics.columns import SUBSETS

LARGEST_LOSS = 1e10


def has_diverged(w: Tensor, local_loss: Tensor) -> Tensor:
    """Whether a round with this mean local loss and the next model w `[P]` diverged; on the device of w."""
    largest = torch.linalg.vector_norm(w, ord=float("inf"))  # much faster than testing every parameter
    sound: Tensor = largest.isfinite() & (local_loss <= LARGEST_LOSS)
    return sound.logical_not()


def evaluation_diverged(scores: Mapping[str, float]) -> bool:
    """Whether a loss among the scores of an evaluation, such as test_loss, is NaN or too large."""
    losses = (scores[name] for subset in SUBSETS if (name := f"{subset}_loss") in scores)
    return any(not value <= LARGEST_LOSS for value in losses)
