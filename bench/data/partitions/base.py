"""The base of all partitions, with class pools, checks of the result, and its hash."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from fedflat.bench.data.dataset import Labels, Samples
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen

Indices = NDArray[np.int64]
Proportions = NDArray[np.float64]

# The published variant is stored as null, so that the identity of a run does not change if a second variant is added.
Variant = Annotated[Literal["published", "released"] | None, AfterValidator(lambda v: None if v == "published" else v)]


class Partition(Frozen):
    """A split of the training images over `clients` clients. No image is used twice unless `repeats_images`."""

    shown_as: ClassVar[str] = ""
    """The kind in titles, before its parameters; empty: labels stand for themselves."""
    heading: ClassVar[str] = ""
    """The heading of the parameters, such as α = {}, below one with the kind; empty: both are one heading."""
    equality: ClassVar[str] = ""
    """The field that is smaller for clients with more different labels, such as α; empty: it has none."""
    becomes_dirichlet: ClassVar[bool] = False
    """Whether a Dirichlet split replaces it at smoke scale."""
    at_smoke_scale: ClassVar[str] = ""
    """What smoke scale changes, as a sentence for captions."""

    name: str
    clients: Count = Field(examples=[20], description="number N of clients")

    @property
    def label(self) -> str:
        """Name and parameter, for paths and tables."""
        return self.name

    @classmethod
    def titled(cls, parameters: str) -> str:
        """A title, from the parameters in a label."""
        return f"{cls.shown_as} {parameters}".strip()

    @classmethod
    def stand_in(cls, options: Mapping[str, Any], classes: int) -> dict[str, Any]:
        """The options of the partition that replaces one with these at smoke scale, which has ten classes; `classes`:
        those of the data set that is replaced."""
        if cls.becomes_dirichlet:
            return {"name": "dirichlet", "alpha": options.get("alpha", 1.0), "clients": options["clients"]}
        return dict(options)

    @property
    def evenness(self) -> float:
        """How equally the clients' labels are distributed, to find the most heterogeneous of an experiment's
        partitions: the field `equality`; infinite for equal shares, 0 if it is not known."""
        return float(getattr(self, self.equality, 0.0))

    @property
    def repeats_images(self) -> bool:
        """Whether an image may belong to several clients."""
        return False

    def split(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        """The sorted training indices of each client. Raises `UserError` if there are too few images."""
        self.check(len(train), train.groups)
        split = [np.sort(indices) for indices in self._draw(train, stream)]
        if min(map(len, split)) == 0:
            raise UserError(f"{self.label} leaves one of {self.clients} clients without images: use fewer clients")
        return split

    def check(self, count: int, groups: Labels | None) -> None:
        """Raises `UserError` if this number of training images, with these `groups` `[count]`, cannot be divided."""
        if self.clients > count and not self.repeats_images:
            raise UserError(f"{self.clients} clients for {count} training images: every client needs at least one")

    @abstractmethod
    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        """The training indices of each client, in any order."""

    def _sizes(self, n: int) -> Indices:
        return np.full(self.clients, n // self.clients) + (np.arange(self.clients) < n % self.clients)

    def _released_sizes(self, n: int) -> Indices:
        """Equal sizes as in FL-Simulator, where client 0 gets the remainder."""
        sizes = np.full(self.clients, n // self.clients)
        sizes[0] += n % self.clients
        return sizes


def class_pools(labels: Labels, stream: np.random.Generator) -> list[Indices]:
    """The images of each class in random order, one array per class; empty for a class without images."""
    return [stream.permutation(np.flatnonzero(labels == c)) for c in range(int(labels.max()) + 1)]


def symmetric_dirichlet(concentration: float, shares: int, stream: np.random.Generator) -> Proportions:
    """Proportions `[shares]`, of classes or of clients, from a symmetric Dirichlet distribution; they sum to 1."""
    drawn = stream.dirichlet(np.full(shares, concentration))
    if not np.isclose(drawn.sum(), 1):  # underflow at a tiny concentration, whose limit is a single share
        drawn = np.eye(shares)[stream.integers(shares)]
    return drawn


def partition_hash(split: list[Indices]) -> str:
    """SHA-256 over all clients' indices, first 16 hex digits."""
    parts: list[str | memoryview] = []
    for indices in split:
        parts += [f"{len(indices)}:", np.ascontiguousarray(indices, dtype=np.int64).data]
    return short_hash(*parts)
