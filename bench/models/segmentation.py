"""Scores of semantic segmentation: confusion matrices, summed exactly over batches, and the mean IoU."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedflat.bench.data.label_maps import IGNORED
from fedflat.bench.models.network import cross_entropy_sum


class ConfusionMatrix:
    """Counts of labelled pixels `[C, C]` by true and predicted class, whole numbers."""

    def __init__(self, classes: int) -> None:
        self.counts = torch.zeros((classes, classes), dtype=torch.int64)

    def add(self, scores: Tensor, y: Tensor) -> None:
        """Count the pixels of a batch: scores `[B, C, height, width]`, label maps y `[B, height, width]`."""
        classes, labelled = len(self.counts), y != IGNORED
        pairs = y[labelled] * classes + scores.argmax(1)[labelled]
        self.counts += torch.bincount(pairs, minlength=classes**2).view(classes, classes).cpu()

    def __add__(self, other: "ConfusionMatrix") -> "ConfusionMatrix":
        both = ConfusionMatrix(len(self.counts))
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


@dataclass(frozen=True)
class _Tally:
    """The sum of the images' losses, the number of images, and the counts of their pixels."""

    loss: float
    images: int
    confusion: ConfusionMatrix

    @classmethod
    def of(cls, model: Callable[[Tensor], Tensor], data: Iterable[tuple[Tensor, Tensor]], classes: int) -> "_Tally":
        losses, images, confusion = list[Tensor](), 0, ConfusionMatrix(classes)
        for x, y in data:
            scores = model(x)
            losses.append(cross_entropy_sum(scores, y).double())
            images += len(y)
            confusion.add(scores, y)
        return cls(float(torch.stack(losses).sum()), images, confusion)

    def __add__(self, other: "_Tally") -> "_Tally":
        return _Tally(self.loss + other.loss, self.images + other.images, self.confusion + other.confusion)


def score_names(parts: Collection[str]) -> list[str]:
    """The names of `segmentation_scores` of these parts."""
    return ["loss", "accuracy", "miou", *(f"miou_{name}" for name in parts if len(parts) > 1)]


def segmentation_scores(
    model: Callable[[Tensor], Tensor], parts: Mapping[str, Iterable[tuple[Tensor, Tensor]]], classes: int
) -> dict[str, float]:
    """Mean `loss` over all images of all parts, `accuracy` of labelled pixels and `miou`, the last two in percent.

    If there are several parts, also the mean IoU of each, such as `miou_seen`. `model` gives the scores of images.
    """
    tallies = {name: _Tally.of(model, data, classes) for name, data in parts.items()}
    first, *others = tallies.values()
    whole = sum(others, first)
    confusion = whole.confusion
    scores = {"loss": whole.loss / whole.images, "accuracy": confusion.accuracy, "miou": confusion.miou}
    of_parts = {f"miou_{name}": tally.confusion.miou for name, tally in tallies.items()} if others else {}
    return scores | of_parts
