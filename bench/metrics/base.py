"""The base of all metrics: numbers that say how well a model predicts the labels of a set of samples."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedflat.bench.data.label_maps import IGNORED
from fedflat.bench.metrics.quantity import Better

Seen = Sequence[Tensor]
"""What a metric keeps of batches."""

Floats = NDArray[np.float64]

NO_CLIENTS: Floats = np.zeros((0, 0))
"""No shares of classes, where a model is evaluated without clients."""


class Metric(ABC):
    """A metric of a model on a set of samples, which are seen in batches.

    Metrics of a class that keeps the same of a batch share it. A column of a run's metrics has the name of the subset
    and that of the metric: test_accuracy. `plural` is used where several values are spoken of.
    """

    name: ClassVar[str]
    """Lower-case letters, digits and underscores. Of a user's metric, by default that of its class in such letters."""
    title: ClassVar[str]
    """Continues the words of a subset: test accuracy. Of a user's metric, by default the words of its name."""
    plural: ClassVar[str] = ""
    better: ClassVar[Better] = "none"
    """Whether higher or lower values are better; none: neither, so nothing is ranked by it."""
    unit: ClassVar[str] = ""
    order: ClassVar[float] = 10
    """The place among metrics: the lowest first."""
    label_maps: ClassVar[bool | None] = None
    """Whether it judges labels of pixels, and not of images: True: only these; False: only images; None: both."""
    in_every_run: ClassVar[bool] = False
    """Whether each run on such labels has it; others are named in `evaluation.metrics`."""

    @classmethod
    def heading(cls) -> str:
        """The title at the start of a heading: Accuracy; names such as mIoU keep their first letter."""
        return cls.title.capitalize() if cls.title.islower() else cls.title

    @staticmethod
    @abstractmethod
    def of_batch(scores: Tensor, y: Tensor) -> Seen:
        """What is kept of a batch: class scores `[B, C]` (or `[B, C, height, width]`) and labels of the same shape,
        without C."""

    @staticmethod
    def joined(before: Seen, batch: Seen) -> Seen:
        """What is kept of all batches so far: sums, unless a class keeps the samples themselves."""
        return [one + other for one, other in zip(before, batch, strict=True)]

    @abstractmethod
    def value(self, seen: Seen, samples: int, shares: Floats) -> float:
        """The metric, from what was kept of all batches with this number of samples.

        `shares` `[N, C]`: how the training images of each of N clients are divided over the classes.
        """


class OfSamples(Metric):
    """A metric of all samples at once, such as a ranking of their scores."""

    label_maps: ClassVar[bool | None] = False

    @final
    @staticmethod
    def of_batch(scores: Tensor, y: Tensor) -> Seen:
        """The samples."""
        return [scores, y]

    @final
    @staticmethod
    def joined(before: Seen, batch: Seen) -> Seen:
        """All samples so far."""
        return [torch.cat(pair) for pair in zip(before, batch, strict=True)]

    @final
    def value(self, seen: Seen, samples: int, shares: Floats) -> float:
        """The metric."""
        return self.of(*seen)

    @abstractmethod
    def of(self, scores: Tensor, y: Tensor) -> float:
        """The metric of class scores `[n, C]` (logits) and labels y `[n]`."""


def confusion(scores: Tensor, y: Tensor) -> Tensor:
    """Counts `[C, C]` of labelled samples, or pixels, by true and predicted class; whole numbers."""
    classes, labelled = scores.shape[1], y != IGNORED
    pairs = y[labelled] * classes + scores.argmax(1)[labelled]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


class OfConfusion(Metric):
    """A metric of the confusion matrix."""

    @final
    @staticmethod
    def of_batch(scores: Tensor, y: Tensor) -> Seen:
        """The counts of the batch."""
        return [confusion(scores, y)]

    @final
    def value(self, seen: Seen, samples: int, shares: Floats) -> float:
        """The metric."""
        return self.of(seen[0].cpu().double())

    @abstractmethod
    def of(self, counts: Tensor) -> float:
        """The metric of counts `[C, C]` by true and predicted class."""
