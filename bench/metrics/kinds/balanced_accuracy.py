"""Balanced accuracy: the mean over classes of the accuracy on each class."""

from torch import Tensor

from fedflat.bench.metrics.base import OfConfusion


class BalancedAccuracy(OfConfusion):
    """The mean of the accuracies of the classes that have samples."""

    name = "balanced_accuracy"
    title = "balanced accuracy"
    plural = "balanced accuracies"
    better = "higher"
    unit = "%"

    def of(self, counts: Tensor) -> float:
        """The mean, as scikit-learn's balanced_accuracy_score."""
        labelled = counts.sum(1)
        return float((100 * counts.diagonal() / labelled)[labelled > 0].mean())
