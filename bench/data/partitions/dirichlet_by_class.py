"""Shares of each class from a symmetric Dirichlet distribution over clients (Yurochkin et al. 2019; Li et al. 2022)."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.dataset import Samples
from fedflat.bench.data.partitions.base import Indices, Partition, class_pools, symmetric_dirichlet
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError

MOST_DRAWS = 10_000
"""Draws until each client has enough images. 4,000 images of ten classes among 50 clients with alpha = 0.1 need 500."""


class DirichletByClass(Partition):
    """The images of each class are divided by shares of the clients from a symmetric Dirichlet(alpha).

    So the number of images differs between clients, unlike in `dirichlet`. The shares of all classes are drawn again
    until each client has `least` images (Yurochkin et al. 2019; Li et al. 2022, NIID-Bench). As in the papers' text,
    the classes are independent of each other; both released codes also exclude a client from further classes as soon
    as it has 1/N of all images.
    """

    shown_as: ClassVar[str] = "Dirichlet by class"
    becomes_dirichlet: ClassVar[bool] = True  # 901 images do not suffice for `least`
    equality: ClassVar[str] = "alpha"
    heading: ClassVar[str] = "α = {}"
    at_smoke_scale: ClassVar[str] = "Clients have equal numbers of images."

    name: Literal["dirichlet_by_class"] = "dirichlet_by_class"
    alpha: float = Field(
        examples=[0.1], gt=0, description="concentration over clients; small values give few clients per class"
    )
    least: Count = Field(
        default=10, description="smallest number of images of a client; shares are drawn again until then"
    )

    @property
    def label(self) -> str:
        """For example dirichlet_by_class-0.1."""
        return f"dirichlet_by_class-{self.alpha:g}"

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        pools = [pool for pool in class_pools(train.labels, stream) if len(pool)]
        ends = self._ends(np.array([len(pool) for pool in pools]), stream)
        shares = [np.split(pool, cuts[:-1]) for pool, cuts in zip(pools, ends, strict=True)]
        return [np.concatenate(own) for own in zip(*shares, strict=True)]

    def _ends(self, sizes: Indices, stream: np.random.Generator) -> Indices:
        """Where the share of each client ends in each class `[classes, N]`, for classes of these `sizes`."""
        n = int(sizes.sum())
        if self.clients * self.least > n:
            raise UserError(
                f"{self.label}: {n} training images are too few for least = {self.least} at each of {self.clients} "
                f"clients (allowed: least up to {n // self.clients})"
            )
        for _ in range(MOST_DRAWS):
            drawn = np.stack([symmetric_dirichlet(self.alpha, self.clients, stream) for _ in sizes])
            ends = (drawn.cumsum(axis=1) * sizes[:, None]).astype(np.int64)
            ends[:, -1] = sizes  # rounding must not lose the last image
            if np.diff(ends, axis=1, prepend=0).sum(axis=0).min() >= self.least:
                return ends
        raise UserError(
            f"{self.label}: none of {MOST_DRAWS:,} draws gives each of {self.clients} clients at least {self.least} of "
            f"{n} training images (allowed: a larger alpha, fewer clients, or a smaller least)"
        )
