"""A fixed number of classes per client (McMahan et al. 2017)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.dataset import Samples
from fedflat.bench.data.partitions.base import Indices, Partition, Variant
from fedflat.bench.data.partitions.refill import fill_and_refill
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError

PLACES = 800
"""Maximum of clients × classes per client at smoke scale: on average 80 clients then share one of the ten
classes, which has a few more than 80 images."""


class Pathological(Partition):
    """Each client has `classes_per_client` classes (McMahan et al. 2017).

    Each class goes to the same number of clients (±1), which share its images equally. The sizes of clients follow from
    this. If N · classes_per_client is less than the number of classes, some classes are not used.
    The variant `released` is FL-Simulator's code: the classes of each client are drawn independently, the client draws
    images from them with equal probability until it has as many as the others, and exhausted classes are refilled, so
    that images repeat.
    """

    shown_as: ClassVar[str] = "Pathological"
    equality: ClassVar[str] = "classes_per_client"
    heading: ClassVar[str] = "{} classes per client"
    at_smoke_scale: ClassVar[str] = (
        "A client holds the same share of the classes as in the paper; there may be fewer clients."
    )

    name: Literal["pathological"] = "pathological"
    classes_per_client: Count = Field(examples=[2], description="number of classes of a client")
    variant: Variant = Field(default=None, description="published (the default), or released: classes are refilled")

    @property
    def label(self) -> str:
        """For example pathological-3, or pathological-3-released."""
        return f"pathological-{self.classes_per_client}" + ("" if self.variant is None else f"-{self.variant}")

    @classmethod
    def stand_in(cls, options: Mapping[str, Any], classes: int) -> dict[str, Any]:
        """The same share of the classes per client, and at most `PLACES` clients × classes."""
        held = max(1, round(options["classes_per_client"] * 10 / classes))
        return {**options, "classes_per_client": held, "clients": min(options["clients"], PLACES // held)}

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        labels = train.labels
        classes = int(labels.max()) + 1
        if self.classes_per_client > classes:
            raise UserError(
                f"pathological split with {self.classes_per_client} classes per client, "
                f"but the data set has {classes} (allowed: 1 to {classes})"
            )
        if self.variant == "released":
            held = np.zeros((self.clients, classes))
            held[:, : self.classes_per_client] = 1 / self.classes_per_client
            return fill_and_refill(labels, stream.permuted(held, axis=1), self._released_sizes(len(labels)), stream)
        holders: list[list[int]] = [[] for _ in range(classes)]
        for client in range(self.clients):
            fewest_first = sorted(stream.permutation(classes), key=lambda c: len(holders[c]))
            for c in fewest_first[: self.classes_per_client]:
                holders[c].append(client)
        chosen: list[list[Indices]] = [[] for _ in range(self.clients)]
        for c, clients in enumerate(holders):
            images = stream.permutation(np.flatnonzero(labels == c))
            for client, share in zip(clients, np.array_split(images, max(len(clients), 1)), strict=False):
                chosen[client].append(share)
        return [np.concatenate(shares) for shares in chosen]
