"""A partition that is read from a file, for example from a released one, or from one that a run has stored."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedflat.bench.data.dataset import Labels, Samples
from fedflat.bench.data.partitions.base import Indices, Partition
from fedflat.bench.files.column_file import integers, read_columns, texts
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.content import KnownFile, read_known, stem, with_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.field_words import FilledIn
from fedflat.bench.input.frozen import LABEL

KIND = "partition file"


class Order(KnownFile):
    """The order of training images to which `index` refers: CSV or npz with the `label` of every position.

    The k-th image of a class in this order is the k-th image of that class in the data set.
    """

    kind: ClassVar[str] = "order file"

    def positions(self, labels: Labels) -> Indices:
        """The data set's index of each position in this order. Raises `UserError` unless the class sizes agree."""
        what = self.what
        there = integers(read_columns(self.content(), what), "label", what)
        if len(there) != len(labels):
            raise UserError(f"{what} has {len(there)} labels, but the data set has {len(labels)} training images")
        positions = np.empty(len(there), dtype=np.int64)
        by_class_there, by_class_here = np.argsort(there, kind="stable"), np.argsort(labels, kind="stable")
        odd = np.flatnonzero(there[by_class_there] != labels[by_class_here])
        if len(odd):
            c = min(there[by_class_there][odd[0]], labels[by_class_here][odd[0]])
            sizes = [np.count_nonzero(where == c) for where in (there, labels)]
            raise UserError(f"{what} has {sizes[0]} images of class {c}, but the data set has {sizes[1]}")
        positions[by_class_there] = by_class_here
        return positions


class FromFile(Partition):
    """The split in a file: CSV (also .csv.gz) or npz with `client`, and `index` or `filename`, one row per image.

    Clients are numbered from 0 without gaps. `index` is the position of the image among the training images of the data
    set, from 0, or in `order`; `filename` is the name of the image in the data set. A column `label` must agree with
    the data set, and distinguishes images of the same name. Images may be left out. With `repeats`, they may repeat.
    """

    name: Literal["from_file"] = "from_file"
    clients: Count = Field(default=1, description="number N of clients; filled in from the file")
    file: Path
    title: str | None = Field(
        default=None, pattern=LABEL, description="the name in paths and tables; null: `file-` and the name of the file"
    )
    order: Order | None = Field(
        default=None, description="labels in the order to which `index` refers, if it is another one"
    )
    repeats: bool = Field(default=False, description="images may repeat, as in FL-Simulator's partitions")
    hash: Annotated[str | None, FilledIn()] = Field(default=None, description="hash of the file's content; filled in")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        data = with_hash(data, KIND)
        if not isinstance(data, Mapping) or not isinstance(data.get("file"), Path) or data.get("clients") is not None:
            return data
        what = _what(data["file"])
        columns = read_columns(read_known(data["file"], data["hash"], KIND), what)
        return {**data, "clients": int(_clients(integers(columns, "client", what), what).max()) + 1}

    @property
    def label(self) -> str:
        """The title, or `file` and the name of the file, for example file-cifar10_alpha_0.5."""
        return self.title or "-".join(filter(None, ("file", stem(self.file))))

    @property
    def repeats_images(self) -> bool:
        """The option `repeats`."""
        return self.repeats

    def _draw(self, train: Samples, stream: np.random.Generator) -> list[Indices]:
        what = _what(self.file)
        columns = read_columns(read_known(self.file, self.hash, KIND), what)
        client = _clients(integers(columns, "client", what), what)
        if int(client.max()) + 1 != self.clients:
            raise UserError(f"{what} has {int(client.max()) + 1} clients, not {self.clients}; leave out `clients`")
        labels = integers(columns, "label", what) if "label" in columns else None
        named: NDArray[Any]
        if "index" in columns:
            index = named = integers(columns, "index", what)
            _refuse_outside(index, len(train), what)
            if self.order is not None:
                index = self.order.positions(train.labels)[index]
        elif "filename" in columns:
            named = texts(columns, "filename", what)
            index = _named_images(named, labels, train, what)
        else:
            raise UserError(f"{what} lacks the column index, or filename (it has: {', '.join(columns)})")
        if not self.repeats:
            _refuse_twice(index, named, client, what)
        if labels is not None:
            _refuse_other_labels(labels, train.labels[index], named, what)
        by_client = np.argsort(client, kind="stable")
        return list(np.split(index[by_client], np.cumsum(np.bincount(client))[:-1]))


def _what(file: Path) -> str:
    return f"the {KIND} '{file}'"


def _clients(client: Indices, what: str) -> Indices:
    """The given client numbers. Raises `UserError` unless every number from 0 to the largest occurs."""
    if client.min() < 0:
        raise UserError(f"{what}: client = {client.min()}: clients are numbered from 0")
    present = np.unique(client)
    gaps = np.flatnonzero(present != np.arange(len(present)))
    if len(gaps):
        raise UserError(f"{what}: client {gaps[0]} has no images: clients are numbered from 0 to N−1 without gaps")
    return client


def _refuse_outside(index: Indices, n: int, what: str) -> None:
    odd = index[(index < 0) | (index >= n)]
    if len(odd):
        raise UserError(f"{what}: index = {odd[0]}: the data set has training images 0 to {n - 1}")


def _named_images(names: NDArray[Any], labels: Labels | None, train: Samples, what: str) -> Indices:
    """The index of the image with each name; among images of the same name, the one with this label."""
    if train.names is None:
        raise UserError(f"{what} names images by filename, but this data set's images have no names (allowed: index)")
    order = np.argsort(train.names, kind="stable")
    first, end = (np.searchsorted(train.names, names, side, sorter=order) for side in ("left", "right"))
    unknown = names[first == end]
    if len(unknown):
        raise UserError(f"{what}: the data set has no training image '{unknown[0]}'")
    found: Indices = order[first].astype(np.int64)
    for k in np.flatnonzero(end - first > 1):  # two images of CIFAR-100 share a name
        namesakes = order[first[k] : end[k]]
        fitting = namesakes if labels is None else namesakes[train.labels[namesakes] == labels[k]]
        if len(fitting) > 1:
            more = "" if labels is not None else "; add a column label to distinguish them"
            raise UserError(f"{what}: {len(fitting)} training images are called '{names[k]}'{more}")
        found[k] = [*fitting, namesakes[0]][0]  # no label fits: `_refuse_other_labels` reports it
    return found


def _refuse_twice(index: Indices, named: NDArray[Any], client: Indices, what: str) -> None:
    order = np.argsort(index, kind="stable")
    twice = np.flatnonzero(np.diff(index[order]) == 0)
    if len(twice):
        first, second = order[twice[0]], order[twice[0] + 1]
        raise UserError(
            f"{what}: image {named[first]} is listed twice, at clients {client[first]} and {client[second]}; "
            "if this is intended, set repeats: true"
        )


def _refuse_other_labels(there: Labels, here: Labels, named: NDArray[Any], what: str) -> None:
    odd = np.flatnonzero(there != here)
    if len(odd):
        k = odd[0]
        raise UserError(
            f"{what}: image {named[k]} has label {there[k]} in the file and {here[k]} in the data set"
            f" ({len(odd)} of {len(there)} labels differ): does the file belong to another data set, or another order?"
        )
