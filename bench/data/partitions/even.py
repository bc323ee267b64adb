"""Splits without heterogeneity: equal shares at random, and everything in one place."""

from typing import Literal

import numpy as np

from bench.data.dataset import Samples
from bench.data.partitions.base import Indices, Partition


class IID(Partition):
    """Uniformly at random, in equal sizes (up to one image)."""

    name: Literal["iid"] = "iid"

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        return list(np.split(stream.permutation(len(train)), np.cumsum(self._sizes(len(train)))[:-1]))


class Centralized(Partition):
    """All data on one machine: with FedAvg, FedSAM or FedASAM this is plain SGD, SAM or ASAM."""

    name: Literal["centralized"] = "centralized"
    clients: Literal[1] = 1

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        return [np.arange(len(train))]
