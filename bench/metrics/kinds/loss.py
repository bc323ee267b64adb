"""Cross-entropy, on which models are trained."""

import torch
from torch import Tensor

from fedflat.bench.metrics.base import Floats, Metric, Seen
from fedflat.bench.models.network import cross_entropy_sum


class MeanLoss(Metric):
    """Mean cross-entropy of all samples; of pixels: the mean over images of the mean over labelled pixels."""

    name = "loss"
    title = "loss"
    plural = "losses"
    better = "lower"
    order = 0
    in_every_run = True

    @staticmethod
    def of_batch(scores: Tensor, y: Tensor) -> Seen:
        """The sum of the samples' losses."""
        return [cross_entropy_sum(scores, y).to(torch.float64)]

    def value(self, seen: Seen, samples: int, shares: Floats) -> float:
        """The mean."""
        return float(seen[0]) / samples
