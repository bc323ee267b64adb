"""Accuracy: the share of samples, or of labelled pixels, that are classified correctly."""

from torch import Tensor

from fedflat.bench.data.label_maps import IGNORED
from fedflat.bench.metrics.base import Floats, Metric, Seen


class Accuracy(Metric):
    """The percentage of samples, or of labelled pixels, whose class has the highest score."""

    name = "accuracy"
    title = "accuracy"
    plural = "accuracies"
    better = "higher"
    unit = "%"
    order = 1
    in_every_run = True

    @staticmethod
    def of_batch(scores: Tensor, y: Tensor) -> Seen:
        """How many are right, and how many are labelled."""
        return [(scores.argmax(1) == y).sum(), (y != IGNORED).sum()]

    def value(self, seen: Seen, samples: int, shares: Floats) -> float:
        """The percentage; 0 if nothing is labelled."""
        right, labelled = seen
        return 100 * float(right) / max(1, int(labelled))
