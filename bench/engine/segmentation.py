"""Scores of semantic segmentation: confusion matrices, summed exactly over batches, and the mean IoU."""

import torch
from torch import Tensor

from bench.models.network import IGNORED


class Confusion:
    """Counts of labelled pixels `[C, C]` by true and predicted class, whole numbers."""

    def __init__(self, classes: int) -> None:
        self.counts = torch.zeros((classes, classes), dtype=torch.int64)

    def add(self, scores: Tensor, y: Tensor) -> None:
        """Count the pixels of a batch: scores `[B, C, height, width]`, label maps y `[B, height, width]`."""
        classes, labelled = len(self.counts), y != IGNORED
        pairs = y[labelled] * classes + scores.argmax(1)[labelled]
        self.counts += torch.bincount(pairs, minlength=classes**2).view(classes, classes).cpu()

    def __add__(self, other: "Confusion") -> "Confusion":
        both = Confusion(len(self.counts))
        both.counts = self.counts + other.counts
        return both

    @property
    def accuracy(self) -> float:
        """The percentage of labelled pixels that are predicted correctly."""
        return 100 * float(self.counts.diagonal().sum()) / max(1, int(self.counts.sum()))

    def iou(self) -> Tensor:
        """The intersection over union of each class `[C]` in percent; NaN for classes without labelled pixels."""
        right, labelled, predicted = self.counts.diagonal(), self.counts.sum(1), self.counts.sum(0)
        iou = 100 * right.double() / (labelled + predicted - right)
        return torch.where(labelled > 0, iou, torch.nan)

    @property
    def miou(self) -> float:
        """The mean of the classes with labelled pixels, in percent; NaN if there are none."""
        return float(self.iou().nanmean())
