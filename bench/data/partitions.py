"""How the training images are split over clients. Each partition is one entry of a configuration's `partition`."""

import hashlib
from abc import abstractmethod
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.data.dataset import Labels, Samples
from bench.errors import UserError
from bench.frozen import Frozen

Indices = NDArray[np.int64]


class Partition(Frozen):
    """A split of the training images over `clients` clients, without replacement."""

    name: str
    clients: int = Field(ge=1, description="registered clients N")

    @property
    def label(self) -> str:
        """Name and parameter, for paths and tables."""
        return self.name

    def split(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        """The sorted training indices of each client; a `UserError` if there are too few images for all clients."""
        if self.clients > len(train):
            raise UserError(f"{self.clients} clients for {len(train)} training images: every client needs one")
        split = [np.sort(indices) for indices in self._draw(train, stream)]
        if min(map(len, split)) == 0:
            raise UserError(f"{self.label} leaves one of {self.clients} clients without an image: use fewer clients")
        return split

    @abstractmethod
    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        """The training indices of each client, in any order."""

    def _sizes(self, n: int) -> Indices:
        return np.full(self.clients, n // self.clients) + (np.arange(self.clients) < n % self.clients)


class IID(Partition):
    """Uniformly at random, in equal sizes (up to one image)."""

    name: Literal["iid"] = "iid"

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        return list(np.split(stream.permutation(len(train)), np.cumsum(self._sizes(len(train)))[:-1]))


class Centralized(Partition):
    """All data on one machine: with FedAvg, FedSAM or FedASAM this is plain SGD, SAM or ASAM."""

    name: Literal["centralized"] = "centralized"
    clients: Literal[1] = 1

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        return [np.arange(len(train))]


class Dirichlet(Partition):
    """Class proportions of each client from a symmetric Dirichlet(alpha), in equal sizes (Acar et al. 2021).

    Clients are filled one image at a time, a random client that has room drawing a class from its own proportions and
    the class's next unused image. When a class is exhausted, proportions are renormalised over the classes left, so
    that no image is used twice; FL-Simulator's release refills the class instead, and images repeat.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(gt=0, description="concentration; small values give few classes per client")

    @property
    def label(self) -> str:
        """For example dirichlet-0.1."""
        return f"dirichlet-{self.alpha:g}"

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        labels = train.labels
        classes = int(labels.max()) + 1
        proportions = stream.dirichlet(np.full(classes, self.alpha), self.clients)
        return _fill(labels, proportions, self._sizes(len(labels)), stream)


class Pathological(Partition):
    """Each client holds `classes_per_client` classes (McMahan et al. 2017).

    Classes are dealt so that each goes to equally many clients (up to one), and a class's images are shared equally by
    its holders. Client sizes follow from that. With fewer places than classes, some classes go to nobody.
    """

    name: Literal["pathological"] = "pathological"
    classes_per_client: int = Field(ge=1, description="classes that a client holds")

    @property
    def label(self) -> str:
        """For example pathological-3."""
        return f"pathological-{self.classes_per_client}"

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        labels = train.labels
        classes = int(labels.max()) + 1
        if self.classes_per_client > classes:
            raise UserError(
                f"pathological split with {self.classes_per_client} classes per client, "
                f"but the data set has {classes} (allowed: 1 to {classes})"
            )
        holders: list[list[int]] = [[] for _ in range(classes)]
        for client in range(self.clients):
            fewest_first = sorted(stream.permutation(classes), key=lambda c: len(holders[c]))
            for c in fewest_first[: self.classes_per_client]:
                holders[c].append(client)
        chosen: list[list[Indices]] = [[] for _ in range(self.clients)]
        for c, clients in enumerate(holders):
            images = stream.permutation(np.flatnonzero(labels == c))
            for client, part in zip(clients, np.array_split(images, max(len(clients), 1)), strict=False):
                chosen[client].append(part)
        return [np.concatenate(parts) for parts in chosen]


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
        # The smallest proportions round up to the total: the last class that has any is the end.
        c = int(min(np.searchsorted(cdf, stream.random() * cdf[-1], side="right"), np.searchsorted(cdf, cdf[-1])))
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


AnyPartition = Annotated[IID | Centralized | Dirichlet | Pathological, Field(discriminator="name")]
