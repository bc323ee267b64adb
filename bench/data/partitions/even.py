"""Partitions without heterogeneity: equal random shares, and all data at one client."""

import math
from typing import ClassVar, Literal

import numpy as np

from fedflat.bench.data.dataset import Samples
from fedflat.bench.data.partitions.base import Indices, Partition


class IID(Partition):
    """Equal shares (±1 image), drawn uniformly at random."""

    shown_as: ClassVar[str] = "IID"

    name: Literal["iid"] = "iid"

    @property
    def evenness(self) -> float:
        """Infinite."""
        return math.inf

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        return list(np.split(stream.permutation(len(train)), np.cumsum(self._sizes(len(train)))[:-1]))


class Centralized(Partition):
    """All data at one client: FedAvg, FedSAM and FedASAM are then plain SGD, SAM and ASAM."""

    shown_as: ClassVar[str] = "Centralized"

    name: Literal["centralized"] = "centralized"
    clients: Literal[1] = 1

    @property
    def evenness(self) -> float:
        """Infinite."""
        return math.inf

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        return [np.arange(len(train))]
