"""Class proportions of each client from a symmetric Dirichlet distribution (Acar et al. 2021)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bench.data.dataset import Labels, Samples
from bench.data.partitions.base import Indices, Partition, Proportions, Variant, class_pools
from bench.data.partitions.refill import fill_and_refill


class Dirichlet(Partition):
    """Class proportions of each client from a symmetric Dirichlet(alpha), in equal sizes (Acar et al. 2021).

    Clients are filled one image at a time, a random client that has room drawing a class from its own proportions and
    the class's next unused image. When a class is exhausted, proportions are renormalised over the classes left, so
    that no image is used twice. Variant `released` is FL-Simulator's code, which refills the class instead: images
    repeat, across clients and within one, and others are never used.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(gt=0, description="concentration; small values give few classes per client")
    variant: Variant = Field(default=None, description="published (the default), or released: classes are refilled")

    @property
    def label(self) -> str:
        """For example dirichlet-0.1, or dirichlet-0.1-released."""
        return f"dirichlet-{self.alpha:g}" + ("" if self.variant is None else f"-{self.variant}")

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        labels = train.labels
        classes = int(labels.max()) + 1
        proportions = stream.dirichlet(np.full(classes, self.alpha), self.clients)
        if self.variant == "released":
            return fill_and_refill(labels, proportions, self._released_sizes(len(labels)), stream)
        return _fill(labels, proportions, self._sizes(len(labels)), stream)


def _fill(labels: Labels, proportions: Proportions, sizes: Indices, stream: np.random.Generator) -> list[Indices]:
    """Fill clients of the given sizes image by image, see `Dirichlet`."""
    pools = [list(pool) for pool in class_pools(labels, stream)]
    left = np.array([len(pool) > 0 for pool in pools])
    cumulative = (proportions * left).cumsum(1)
    chosen: list[list[int]] = [[] for _ in sizes]
    open_clients = list(range(len(sizes)))
    while open_clients:
        client = open_clients[stream.integers(len(open_clients))]
        cdf = cumulative[client]
        if cdf[-1] <= 0:  # nothing of its classes is left: whatever is left, in proportion
            cdf = np.cumsum([len(pool) for pool in pools], dtype=float)
        # The smallest proportions round up to the total: the last class that has any is the end.
        c = int(min(cdf.searchsorted(stream.random() * cdf[-1], side="right"), cdf.searchsorted(cdf[-1])))
        chosen[client].append(pools[c].pop())
        if not pools[c]:
            left[c] = False
            cumulative = (proportions * left).cumsum(1)
        if len(chosen[client]) == sizes[client]:
            open_clients.remove(client)
    return [np.asarray(indices, dtype=np.int64) for indices in chosen]
