"""Pachinko allocation over a hierarchy of labels (Reddi et al. 2021), the partition of federated CIFAR-100."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.dataset import Labels, Samples
from fedflat.bench.data.partitions.base import (
    Indices,
    Partition,
    Proportions,
    class_pools,
    symmetric_dirichlet,
)
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError


class PAM(Partition):
    """Coarse labels of each client from Dirichlet(alpha), fine labels within each from Dirichlet(beta); equal sizes.

    Clients are filled one after another, image by image: draw a coarse label, a fine label within it, and one of its
    unused images. Exhausted fine labels, and coarse labels without remaining fine labels, are removed, and the other
    proportions are renormalised. Coarse labels are the groups of the data set. Defaults are those of Reddi et al. 2021,
    Appendix: 500 clients of 100 images.

    Caldarola et al. 2022 apply LDA "on the result of" PAM. PAM already is LDA on two levels, so we take their alpha of
    0.1 as the one over coarse labels, and do not split a second time.
    """

    shown_as: ClassVar[str] = "PAM"
    becomes_dirichlet: ClassVar[bool] = True  # digits have no coarse labels
    equality: ClassVar[str] = "alpha"
    at_smoke_scale: ClassVar[str] = "Splits by groups are replaced by Dirichlet splits."

    name: Literal["pam"] = "pam"
    clients: Count = Field(default=500, description="number N of clients")
    alpha: float = Field(default=0.1, gt=0, description="concentration over coarse labels")
    beta: float = Field(default=10.0, gt=0, description="concentration over the fine labels of a coarse label")

    @property
    def label(self) -> str:
        """For example pam-0.1-10."""
        return f"pam-{self.alpha:g}-{self.beta:g}"

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        if train.groups is None:
            raise UserError("pam needs coarse labels, which this data set lacks (cifar100_pam has them)")
        pools = [list(pool) for pool in class_pools(train.labels, stream)]
        families = _families(train.labels, train.groups)
        chosen: list[Indices] = []
        for size in self._sizes(len(train)):
            tree = _Tree(families, self.alpha, self.beta, stream)
            indices: list[int] = []
            while len(indices) < size:
                fine = tree.draw(stream)
                indices.append(pools[fine].pop())
                if not pools[fine]:
                    families = [[c for c in family if c != fine] for family in families]
                    families = [family for family in families if family]
                    tree.drop(fine)
                    if tree.is_empty and families:
                        tree = _Tree(families, self.alpha, self.beta, stream)
            chosen.append(np.asarray(indices, dtype=np.int64))
        return chosen


class _Tree:
    """One client's proportions over coarse labels, and over the fine labels of each, as cumulative sums."""

    def __init__(self, families: list[list[int]], alpha: float, beta: float, stream: np.random.Generator) -> None:
        self.families = [list(family) for family in families]
        self.coarse = symmetric_dirichlet(alpha, len(families), stream)
        self.fine = [symmetric_dirichlet(beta, len(family), stream) for family in families]
        self._accumulate()

    def _accumulate(self) -> None:
        self.coarse_sums = self.coarse.cumsum()
        self.fine_sums = [shares.cumsum() for shares in self.fine]

    @property
    def is_empty(self) -> bool:
        """Whether no label with a positive proportion remains."""
        return bool(self.coarse_sums[-1] <= 0)

    def draw(self, stream: np.random.Generator) -> int:
        """Draws a fine label."""
        coarse = _place(self.coarse_sums, stream)
        return self.families[coarse][_place(self.fine_sums[coarse], stream)]

    def drop(self, fine: int) -> None:
        """Removes an exhausted fine label."""
        for coarse, family in enumerate(self.families):
            if fine in family:
                self.fine[coarse][family.index(fine)] = 0
                if self.fine[coarse].sum() <= 0:
                    self.coarse[coarse] = 0
        self._accumulate()


def _place(sums: Proportions, stream: np.random.Generator) -> int:
    """Draws an index with these cumulative proportions, never one of proportion 0."""
    return int(min(sums.searchsorted(stream.random() * sums[-1], side="right"), sums.searchsorted(sums[-1])))


def _families(labels: Labels, groups: Labels) -> list[list[int]]:
    """The fine labels of each coarse label. Raises `UserError` if a fine label has two coarse labels."""
    pairs = np.unique(np.stack([groups, labels]), axis=1)
    fine, count = np.unique(pairs[1], return_counts=True)
    if count.max() > 1:
        raise UserError(f"pam needs one coarse label per class, but class {fine[count.argmax()]} has {count.max()}")
    return [pairs[1, pairs[0] == coarse].tolist() for coarse in np.unique(pairs[0])]
