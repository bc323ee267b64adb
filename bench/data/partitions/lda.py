"""Latent Dirichlet allocation over classes (Hsu et al. 2019), as Caldarola et al. 2022 and FedGF split their data."""

from typing import Literal

import numpy as np
from pydantic import Field

from bench.data.dataset import Samples
from bench.data.partitions.base import Indices, Partition, Proportions, class_pools, symmetric_dirichlet
from bench.input.errors import UserError


class LDA(Partition):
    """Class proportions q of each client from Dirichlet(alpha · p), p uniform over classes, in equal sizes (±1 image).

    The concentration per class is alpha / C, so alpha counts C times what it does for `dirichlet`. Clients are filled
    one after another with as near to q times their size as whole images allow; what an exhausted class lacks comes
    from new proportions over the classes left, so late clients get what is left over. With alpha = 0 each client holds
    one class, and each class is shared equally by N/C clients.

    The released splits, which are files without their code, agree with this in number of classes and entropy.
    """

    name: Literal["lda"] = "lda"
    alpha: float = Field(ge=0, description="concentration over all classes together; 0: one class per client")

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
            parts: list[Indices] = []
            missing = int(size)
            while missing:
                proportions = np.zeros(len(left))
                proportions[left > 0] = symmetric_dirichlet(concentration, int(np.count_nonzero(left)), stream)
                taken = np.minimum(_whole(proportions, missing), left)
                parts += [pools[c][left[c] - taken[c] : left[c]] for c in np.flatnonzero(taken)]
                left -= taken
                missing -= int(taken.sum())
            chosen.append(np.concatenate(parts))
        return chosen

    def _one_class_each(self, pools: list[Indices], stream: np.random.Generator) -> list[Indices]:
        if self.clients % len(pools):
            raise UserError(
                f"lda with alpha = 0 gives each class to equally many clients: "
                f"{self.clients} clients are no multiple of {len(pools)} classes"
            )
        parts = [part for pool in pools for part in np.array_split(pool, self.clients // len(pools))]
        return [parts[i] for i in stream.permutation(self.clients)]


def _whole(proportions: Proportions, size: int) -> Indices:
    """Whole numbers `[classes]` nearest to `size` · `proportions` that sum to `size` (largest remainders)."""
    exact = size * proportions / proportions.sum()
    counts: Indices = np.floor(exact).astype(np.int64)
    missing = size - int(counts.sum())
    if missing > 0:
        counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts
