"""Clients with unequal amounts of data and the same distribution of labels (Li et al. 2022, NIID-Bench, section IV)."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.dataset import Samples
from fedflat.bench.data.partitions.base import Indices, Partition, symmetric_dirichlet
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError


class QuantitySkew(Partition):
    """The clients' shares q of all images are drawn from a symmetric Dirichlet(alpha), the images uniformly.

    Each client gets `least` images; those that remain are divided by q, rounded to whole images. NIID-Bench draws q
    again instead until each client has ten images.
    """

    shown_as: ClassVar[str] = "Quantity skew"
    heading: ClassVar[str] = "α = {}"

    name: Literal["quantity_skew"] = "quantity_skew"
    alpha: float = Field(examples=[0.5], gt=0, description="concentration over clients; small values: few large ones")
    least: Count = Field(default=10, description="smallest number of images of a client")

    @property
    def label(self) -> str:
        """For example quantity_skew-0.5."""
        return f"quantity_skew-{self.alpha:g}"

    @property
    def evenness(self) -> float:
        """Infinite: the labels of all clients have the same distribution."""
        return float("inf")

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        if (free := len(train) - self.clients * self.least) < 0:
            raise UserError(
                f"{self.label}: {len(train)} training images are too few for least = {self.least} at each of "
                f"{self.clients} clients"
            )
        shares = symmetric_dirichlet(self.alpha, self.clients, stream)
        ends = np.rint(np.cumsum(shares) * free).astype(np.int64) + self.least * np.arange(1, self.clients + 1)
        return list(np.split(stream.permutation(len(train)), ends[:-1]))
