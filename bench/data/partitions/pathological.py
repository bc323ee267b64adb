"""A fixed number of classes per client (McMahan et al. 2017)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bench.data.dataset import Samples
from bench.data.partitions.base import Indices, Partition, Variant
from bench.data.partitions.refill import fill_and_refill
from bench.input.errors import UserError


class Pathological(Partition):
    """Each client holds `classes_per_client` classes (McMahan et al. 2017).

    Classes are dealt so that each goes to equally many clients (up to one), and a class's images are shared equally by
    its holders. Client sizes follow from that. With fewer places than classes, some classes go to nobody.
    Variant `released` is FL-Simulator's code: every client's classes are drawn for it alone, it draws from them with
    equal probability until it has as many images as the others, and exhausted classes are refilled: images repeat.
    """

    name: Literal["pathological"] = "pathological"
    classes_per_client: int = Field(ge=1, description="classes that a client holds")
    variant: Variant = Field(default=None, description="published (the default), or released: classes are refilled")

    @property
    def label(self) -> str:
        """For example pathological-3, or pathological-3-released."""
        return f"pathological-{self.classes_per_client}" + ("" if self.variant is None else f"-{self.variant}")

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
            for client, part in zip(clients, np.array_split(images, max(len(clients), 1)), strict=False):
                chosen[client].append(part)
        return [np.concatenate(parts) for parts in chosen]
