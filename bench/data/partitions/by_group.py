"""One client per group of the data set, such as domain or author, or a number of clients for each."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.dataset import Labels, Samples
from fedflat.bench.data.partitions.base import Indices, Partition
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError


class ByGroup(Partition):
    """Client k has all images of the k-th group of the data set, in the order of the group numbers.

    With `clients_per_group`, the images of each group are divided among this number of clients, in equal random shares
    (±1 image): the first clients belong to the first group.
    """

    shown_as: ClassVar[str] = "By group"
    becomes_dirichlet: ClassVar[bool] = True  # digits have no groups, unless the source says what replaces them
    at_smoke_scale: ClassVar[str] = "Splits by groups are replaced by Dirichlet splits."

    name: Literal["by_group"] = "by_group"
    clients_per_group: Count | None = Field(
        examples=[2], default=None, description="number of clients that share a group, such as a domain; null: one"
    )

    def check(self, count: int, groups: Labels | None) -> None:
        """Also raises `UserError` without groups, or for another number of clients than theirs."""
        super().check(count, groups)
        if groups is None:
            raise UserError(
                "by_group needs groups, which this data set lacks (data sets of domains have them, an image folder "
                "with clients: {file: FILE}, arrays with client_train)"
            )
        there, each = len(np.unique(groups)), self.clients_per_group or 1
        if there * each != self.clients:
            per_group = "" if self.clients_per_group is None else f" with {each} clients each"
            raise UserError(
                f"by_group with {self.clients} clients, but the data set has {there} groups{per_group} (allowed: "
                f"{there * each} clients)"
            )

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        assert train.groups is not None  # checked
        sizes = np.unique(train.groups, return_counts=True)[1]
        groups = np.split(np.argsort(train.groups, kind="stable"), np.cumsum(sizes)[:-1])
        if self.clients_per_group is None:
            return list(groups)
        return [share for own in groups for share in np.array_split(stream.permutation(own), self.clients_per_group)]
