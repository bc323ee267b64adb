"""Macro-F1: classes count equally, however many samples they have."""

from torch import Tensor

from fedflat.bench.metrics.base import OfConfusion


class MacroF1(OfConfusion):
    """The mean over classes of F1 = 2 · right / (labelled + predicted), of classes that are labelled or predicted."""

    name = "macro_f1"
    title = "macro-F1"
    better = "higher"
    unit = "%"

    def of(self, counts: Tensor) -> float:
        """The mean, as scikit-learn's f1_score with average macro."""
        sums = counts.sum(1) + counts.sum(0)
        return float((200 * counts.diagonal()[sums > 0] / sums[sums > 0]).mean())
