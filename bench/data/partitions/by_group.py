"""One client per group of the data set, such as domain or author."""

from typing import Literal

import numpy as np

from bench.data.dataset import Samples
from bench.data.partitions.base import Indices, Partition
from bench.input.errors import UserError


class ByGroup(Partition):
    """Client k has all images of the k-th group of the data set, in the order of the group numbers."""

    name: Literal["by_group"] = "by_group"

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        if train.groups is None:
            raise UserError(
                "by_group needs groups, which this data set lacks (an image folder has them with "
                "clients: {file: FILE}, arrays with client_train)"
            )
        sizes = np.unique(train.groups, return_counts=True)[1]
        if len(sizes) != self.clients:
            raise UserError(f"by_group with {self.clients} clients, but the data set has {len(sizes)} groups")
        return list(np.split(np.argsort(train.groups, kind="stable"), np.cumsum(sizes)[:-1]))
