"""Class proportions of each client from a symmetric Dirichlet distribution (Acar et al. 2021)."""

from bisect import bisect_left, bisect_right
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.dataset import Labels, Samples
from fedflat.bench.data.partitions.base import (
    Indices,
    Partition,
    Proportions,
    Variant,
    class_pools,
    symmetric_dirichlet,
)
from fedflat.bench.data.partitions.refill import fill_and_refill


class Dirichlet(Partition):
    """Class proportions of each client from a symmetric Dirichlet(alpha), in equal sizes (Acar et al. 2021).

    Clients are filled image by image: a random client that is not yet full draws a class from its proportions and gets
    the next unused image of that class. When a class is exhausted, proportions are renormalised over the remaining
    classes, so that no image is used twice; a client whose classes are all exhausted draws new proportions over the
    remaining ones. The variant `released` is FL-Simulator's code, which refills the class instead: images repeat,
    across clients and within one, and others are never used.
    """

    shown_as: ClassVar[str] = "Dirichlet"
    equality: ClassVar[str] = "alpha"
    heading: ClassVar[str] = "α = {}"

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(examples=[0.1], gt=0, description="concentration; small values give few classes per client")
    variant: Variant = Field(default=None, description="published (the default), or released: classes are refilled")

    @property
    def label(self) -> str:
        """For example dirichlet-0.1, or dirichlet-0.1-released."""
        return f"dirichlet-{self.alpha:g}" + ("" if self.variant is None else f"-{self.variant}")

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        labels = train.labels
        classes = int(labels.max()) + 1
        proportions = np.stack([symmetric_dirichlet(self.alpha, classes, stream) for _ in range(self.clients)])
        if self.variant == "released":
            return fill_and_refill(labels, proportions, self._released_sizes(len(labels)), stream)
        return self._fill(labels, proportions, stream)

    def _fill(self, labels: Labels, proportions: Proportions, stream: np.random.Generator) -> list[Indices]:
        """Fills the clients image by image, according to their class `proportions` `[N, classes]`."""
        sizes = self._sizes(len(labels))
        pools = [pool.tolist() for pool in class_pools(labels, stream)]
        left = np.array([len(pool) > 0 for pool in pools])
        # Lists are used because NumPy is slow for single numbers.
        cumulative = (proportions * left).cumsum(1).tolist()
        chosen: list[list[int]] = [[] for _ in sizes]
        open_clients = list(range(len(sizes)))
        while open_clients:
            k = int(stream.integers(len(open_clients)))
            client = open_clients[k]
            if cumulative[client][-1] <= 0:  # all of its classes are exhausted
                proportions[client] = 0
                proportions[client, left] = symmetric_dirichlet(self.alpha, int(left.sum()), stream)
                cumulative[client] = proportions[client].cumsum().tolist()
            row = cumulative[client]
            # Rounding must not lead past the last class with a positive proportion.
            c = min(bisect_right(row, stream.random() * row[-1]), bisect_left(row, row[-1]))
            chosen[client].append(pools[c].pop())
            if not pools[c]:
                left[c] = False
                cumulative = (proportions * left).cumsum(1).tolist()
            if len(chosen[client]) == sizes[client]:
                del open_clients[k]  # remove(client) would search the whole list
        return [np.asarray(indices, dtype=np.int64) for indices in chosen]
