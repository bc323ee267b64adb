"""Latent Dirichlet allocation over classes (Hsu et al. 2019), as used by Caldarola et al. 2022 and FedGF."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.dataset import Samples
from fedflat.bench.data.partitions.base import Indices, Partition, Proportions, class_pools, symmetric_dirichlet
from fedflat.bench.input.errors import UserError


class LDA(Partition):
    """Class proportions q of each client from Dirichlet(alpha · p), p uniform over classes, in equal sizes (±1 image).

    The concentration per class is alpha / C: for the same heterogeneity, alpha is C times that of `dirichlet`. Clients
    are filled one after another with q times their size, rounded to whole images. If a class is exhausted, the missing
    images come from new proportions over the remaining classes. With alpha = 0 each client has one class, and N/C
    clients share each class equally.

    The released partitions, which are files without code, agree with this one in number of classes and entropy.
    """

    shown_as: ClassVar[str] = "LDA"
    equality: ClassVar[str] = "alpha"
    heading: ClassVar[str] = "α = {}"

    name: Literal["lda"] = "lda"
    alpha: float = Field(
        examples=[0.1], ge=0, description="concentration over all classes together; 0: one class per client"
    )

    @property
    def label(self) -> str:
        """For example lda-0.05."""
        return f"lda-{self.alpha:g}"

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        pools = class_pools(train.labels, stream)
        if self.alpha == 0:
            return self._one_class_each([pool for pool in pools if len(pool)], stream)
        left = np.array([len(pool) for pool in pools])
        concentration = self.alpha / np.count_nonzero(left)
        chosen: list[Indices] = []
        for size in self._sizes(len(train)):
            pieces: list[Indices] = []
            missing = int(size)
            while missing:
                proportions = np.zeros(len(left))
                proportions[left > 0] = symmetric_dirichlet(concentration, int(np.count_nonzero(left)), stream)
                taken = np.minimum(_whole(proportions, missing), left)
                pieces += [pools[c][left[c] - taken[c] : left[c]] for c in np.flatnonzero(taken)]
                left -= taken
                missing -= int(taken.sum())
            chosen.append(np.concatenate(pieces))
        return chosen

    def _one_class_each(self, pools: list[Indices], stream: np.random.Generator) -> list[Indices]:
        if self.clients % len(pools):
            raise UserError(
                f"lda with alpha = 0 gives each class to the same number of clients: "
                f"{self.clients} clients are not a multiple of {len(pools)} classes"
            )
        pieces = [piece for pool in pools for piece in np.array_split(pool, self.clients // len(pools))]
        return [pieces[i] for i in stream.permutation(self.clients)]


def _whole(proportions: Proportions, size: int) -> Indices:
    """Whole numbers `[classes]` nearest to `size` · `proportions` that sum to `size` (largest remainders)."""
    exact = size * proportions / proportions.sum()
    counts: Indices = np.floor(exact).astype(np.int64)
    missing = size - int(counts.sum())
    if missing > 0:
        counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts
