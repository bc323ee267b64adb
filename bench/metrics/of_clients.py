"""Metrics over clients: how differently the global model serves them."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedflat.bench.metrics.base import Floats, Metric, OfConfusion, Seen


def label_shares(labels: NDArray[np.int64], split: Sequence[NDArray[np.int64]], classes: int) -> Floats:
    """p_i(c) `[N, C]`: the share of class c among the training images of client i."""
    counts: Floats = np.array([np.bincount(labels[own], minlength=classes) for own in split], dtype=np.float64)
    shares: Floats = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shares


def expected_of_clients(of_classes: Floats, shares: Floats) -> Floats:
    """Σ_c p_i(c) a(c) `[N]`, for the accuracies a `[C]` on the test images of each class.

    This is the expected accuracy on test images that are drawn with the client's label distribution. Classes that the
    test set lacks are left out, and the shares of the others are scaled up to a sum of 1.
    """
    in_test_set = ~np.isnan(of_classes)
    known = shares[:, in_test_set]
    total = known.sum(1)
    expected: Floats = np.full(len(shares), np.nan)
    np.divide(known @ of_classes[in_test_set], total, out=expected, where=total > 0)
    return expected


def accuracies_of_clients(counts: Tensor, shares: Floats) -> Floats:
    """The accuracy in percent of each client `[N]`, from counts `[C, C]` by true and predicted class.

    It is that of `expected_of_clients`; NaN for a client of whose classes none has samples.
    """
    found = counts.cpu().double().numpy()
    labelled = found.sum(1)
    of_classes = np.divide(found.diagonal(), labelled, out=np.full(len(found), np.nan), where=labelled > 0)
    accuracies: Floats = 100 * expected_of_clients(of_classes, shares)
    return accuracies


def mean_of_clients(values: NDArray[Any], split: Sequence[NDArray[np.int64]]) -> Floats:
    """The mean `[N]` over each client's training images, of values `[n]` for all training images.

    An image counts as often as the client holds it.
    """
    return np.array([np.mean(values[own]) if len(own) else np.nan for own in split], dtype=np.float64)


class OfClients(Metric):
    """A metric of the accuracies of all clients in percent, which are those of `expected_of_clients`."""

    label_maps: ClassVar[bool | None] = False
    of_batch = staticmethod(OfConfusion.of_batch)

    @final
    def value(self, seen: Seen, samples: int, shares: Floats) -> float:
        """The metric; NaN if no client has a class with samples."""
        accuracies = accuracies_of_clients(seen[0], shares)
        known = accuracies[~np.isnan(accuracies)]
        return self.of(known) if len(known) else float("nan")

    @abstractmethod
    def of(self, accuracies: Floats) -> float:
        """The metric of the accuracies of clients `[N]`, at least one."""
