"""Area under the ROC curve: how well scores rank the samples of each class before those of others."""

import torch
from torch import Tensor

from fedflat.bench.metrics.base import OfSamples


class AUC(OfSamples):
    """The mean over classes of the area under the curve of one class against the rest, by probabilities.

    Left out are classes without samples, or with all of them.
    """

    name = "auc"
    title = "AUC"
    better = "higher"
    unit = "%"

    def of(self, scores: Tensor, y: Tensor) -> float:
        """The mean, as scikit-learn's roc_auc_score with multi_class ovr and average macro; NaN of one class."""
        probabilities = scores.double().softmax(1).cpu()
        y = y.cpu()
        areas = [_area(column, y == c) for c, column in enumerate(probabilities.T) if 0 < (y == c).sum() < len(y)]
        return 100 * sum(areas) / len(areas) if areas else float("nan")


def _area(values: Tensor, is_positive: Tensor) -> float:
    """The share of pairs of a positive and a negative sample in which the positive one is higher; ties count half."""
    _, places, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    ranks = (ends - (counts.double() - 1) / 2)[places]  # from 1; equal values share their mean rank
    positives = int(is_positive.sum())
    negatives = len(values) - positives
    return (float(ranks[is_positive].sum()) - positives * (positives + 1) / 2) / (positives * negatives)
