"""How the training images are split over clients. Each partition is one entry of a configuration's `partition`."""

import hashlib
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.data.dataset import Labels
from bench.errors import UserError
from bench.frozen import Frozen

Indices = NDArray[np.int64]


class Partition(Frozen):
    """A split of n training images over `clients` clients of equal size (up to one image), without replacement."""

    name: str
    clients: int = Field(ge=1, description="registered clients N")

    @property
    def label(self) -> str:
        """Name and parameter, for paths and tables."""
        return self.name

    def split(self, labels: Labels, stream: np.random.Generator) -> list[Indices]:
        """The sorted training indices of each client; a `UserError` if there are fewer images than clients."""
        if self.clients > len(labels):
            raise UserError(f"{self.clients} clients for {len(labels)} training images: every client needs one")
        return [np.sort(indices) for indices in self._draw(labels, stream)]

    def _draw(self, labels: Labels, stream: np.random.Generator) -> list[Indices]:
        raise NotImplementedError

    def _sizes(self, n: int) -> Indices:
        return np.full(self.clients, n // self.clients) + (np.arange(self.clients) < n % self.clients)


class IID(Partition):
    """Uniformly at random."""

    name: Literal["iid"] = "iid"

    def _draw(self, labels: Labels, stream: np.random.Generator) -> list[Indices]:
        return list(np.split(stream.permutation(len(labels)), np.cumsum(self._sizes(len(labels)))[:-1]))


class Dirichlet(Partition):
    """Class proportions of each client from a symmetric Dirichlet(alpha) (Acar et al. 2021; FL-Simulator).

    Clients are filled one image at a time, a random client that has room drawing a class from its own proportions and
    the class's next unused image. When a class is exhausted, proportions are renormalised over the classes left, so
    that no image is used twice.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(gt=0, description="concentration; small values give few classes per client")

    @property
    def label(self) -> str:
        """For example dirichlet-0.1."""
        return f"dirichlet-{self.alpha:g}"

    def _draw(self, labels: Labels, stream: np.random.Generator) -> list[Indices]:
        classes = int(labels.max()) + 1
        proportions = stream.dirichlet(np.full(classes, self.alpha), self.clients)
        return _fill(labels, proportions, self._sizes(len(labels)), stream)


class Pathological(Partition):
    """Each client holds `classes_per_client` classes, chosen at random (McMahan et al. 2017; FL-Simulator)."""

    name: Literal["pathological"] = "pathological"
    classes_per_client: int = Field(ge=1, description="classes that a client holds")

    @property
    def label(self) -> str:
        """For example pathological-3."""
        return f"pathological-{self.classes_per_client}"

    def _draw(self, labels: Labels, stream: np.random.Generator) -> list[Indices]:
        classes = int(labels.max()) + 1
        if self.classes_per_client > classes:
            raise UserError(
                f"pathological split with {self.classes_per_client} classes per client, "
                f"but the data set has {classes} (allowed: 1 to {classes})"
            )
        held = np.zeros((self.clients, classes))
        for row in held:
            row[stream.permutation(classes)[: self.classes_per_client]] = 1
        return _fill(labels, held / self.classes_per_client, self._sizes(len(labels)), stream)


def _fill(
    labels: Labels, proportions: NDArray[np.float64], sizes: Indices, stream: np.random.Generator
) -> list[Indices]:
    """Fill clients of the given sizes image by image, see `Dirichlet`."""
    clients, classes = proportions.shape
    pools = [list(stream.permutation(np.flatnonzero(labels == c))) for c in range(classes)]
    chosen: list[list[int]] = [[] for _ in range(clients)]
    open_clients = list(range(clients))
    cumulative = proportions.cumsum(1)
    while open_clients:
        client = open_clients[stream.integers(len(open_clients))]
        cdf = cumulative[client]
        if cdf[-1] <= 0:  # nothing of its classes is left: whatever is left, in proportion
            cdf = np.cumsum([len(pool) for pool in pools], dtype=float)
        c = int(np.searchsorted(cdf, stream.random() * cdf[-1], side="right"))
        chosen[client].append(pools[c].pop())
        if not pools[c]:
            proportions[:, c] = 0
            cumulative = proportions.cumsum(1)
        if len(chosen[client]) == sizes[client]:
            open_clients.remove(client)
    return [np.asarray(indices, dtype=np.int64) for indices in chosen]


def partition_hash(split: list[Indices]) -> str:
    """SHA-256 over all clients' indices, first 16 hex digits."""
    digest = hashlib.sha256()
    for indices in split:
        digest.update(f"{len(indices)}:".encode())
        digest.update(np.ascontiguousarray(indices, dtype=np.int64).tobytes())
    return digest.hexdigest()[:16]


AnyPartition = Annotated[IID | Dirichlet | Pathological, Field(discriminator="name")]
