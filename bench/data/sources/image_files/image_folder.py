"""User-defined images, in one folder per class."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bench.data.cache import Cached
from bench.data.dataset import Dataset, Samples, Subset
from bench.data.sources.base import cache_place
from bench.data.sources.image_files.decoding import ImageFiles, Side
from bench.data.sources.image_files.margins import Margins
from bench.data.sources.image_files.own_folder import OwnFolder, files_of_class, folders_in
from bench.files.column_file import read_columns, texts
from bench.input.content import KnownFile
from bench.input.errors import UserError

SUBSETS: tuple[Subset, ...] = ("train", "test")


class Clients(KnownFile):
    """A CSV with the columns client and filename (below `train`, such as cat/0001.jpg): the client of each image."""

    kind: ClassVar[str] = "clients file"

    def groups(self, names: list[str]) -> dict[str, int]:
        """The client number of each image, with clients in sorted order. Every image must have a client."""
        what = self.what
        columns = read_columns(self.content(), what)
        clients, files = (texts(columns, name, what) for name in ("client", "filename"))
        images, counts = np.unique(files, return_counts=True)
        if (twice := images[counts > 1]).size:
            raise UserError(f"{what} lists {twice[0]} twice")
        if unknown := sorted(set(files) - set(names)):
            raise UserError(f"{what} lists {unknown[0]}, which is not a training image")
        if missing := sorted(set(names) - set(files)):
            raise UserError(f"{what} has no client for {missing[0]}")
        numbers = np.unique(clients, return_inverse=True)[1]
        return dict(zip(files.tolist(), numbers.tolist(), strict=True))


class ImageFolder(OwnFolder, Margins):
    """User-defined images: `root/train/<class>/*` and `root/test/<class>/*`, all of one size, or scaled to `size`.

    Classes are the sorted folder names in `train`. All formats that Pillow reads are accepted, with at most 8 bits per
    channel, and converted to RGB. The `clients` are the groups of the training images, which the partition by_group
    uses. The identity of a run depends on the name of the folder and on its images, not on its path.
    """

    name: Literal["image_folder"] = "image_folder"
    clients: Clients | None = Field(default=None, description="a file with the client of each image; null: no groups")
    size: Side | None = Field(
        default=None, description="height and width of the stored images; null: all images have the same size"
    )

    layout: ClassVar[str] = "root/train/<class>/*, root/test/<class>/*"

    @property
    def label(self) -> str:
        """The title."""
        return self.title

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255, normalised by mean and deviation of the training images.

        Raises `UserError` for a missing folder, an unreadable file, or a file of another size.
        """
        classes = self._classes("train")
        files = {
            subset: self._files(subset, classes) for subset in SUBSETS
        }  # wrong folders are reported before work begins
        train, test = (self._part(subset, classes, files[subset], root) for subset in SUBSETS)
        if self.clients is not None:
            train = replace(train, samples=self._with_groups(train.samples, self.clients))
        self._check_sizes(train.samples.images.shape[2:], test.samples.images.shape[2:])
        return Dataset(
            self.label, train.samples, test.samples, len(classes), 255.0, train.mean, train.std, crop=self.crop
        )

    def check(self, root: Path) -> Iterator[str]:
        """Decodes every image without storing it."""
        classes = self._classes("train")
        found = {subset: self._files(subset, classes) for subset in SUBSETS}
        shapes = dict[Subset, tuple[int, ...]]()
        for subset, files in found.items():
            files.require()
            count = 0
            for chunk in files.decoded(self.size):
                count += len(chunk)
                shapes[subset] = chunk.images.shape[2:]
            yield f"'{self.root / subset}': {count:,} images in {len(classes)} classes, ok"
        self._check_sizes(shapes["train"], shapes["test"])

    def _check_sizes(self, train: tuple[int, ...], test: tuple[int, ...]) -> None:
        if test != train:
            sizes = f"{test}, but the training images are {train}"
            raise UserError(f"the test images of '{self.root}' are {sizes}: all must have one size")

    def _part(self, subset: Subset, classes: list[str], files: ImageFiles, root: Path) -> Cached:
        size = "" if self.size is None else f":{self.size}"
        place = cache_place(root, f"{self.label}-{subset}", f"{self.root.resolve()}{size}")
        key = {"source": self.name, "classes": classes}
        return files.stored(place, self.root / subset, self.size, len(classes), key)

    def _classes(self, subset: str) -> list[str]:
        return folders_in(self.root / subset, "class", f"{subset}/<class>/<image files>")

    def _files(self, subset: str, classes: list[str]) -> ImageFiles:
        """The sorted files of each class, one class after another."""
        folder = self.root / subset
        extra = set(self._classes(subset)) - set(classes)
        if extra:
            raise UserError(f"class '{min(extra)}' is in {folder} but not in {self.root / 'train'}")
        members = [files_of_class(folder, name) for name in classes]
        labels = np.repeat(np.arange(len(classes)), [len(files) for files in members])
        files = [file for of_class in members for file in of_class]
        return ImageFiles(files, labels, [f"{file.parent.name}/{file.name}" for file in files])

    def _with_groups(self, train: Samples, clients: Clients) -> Samples:
        """The same images with their clients as groups, which are part of the content hash."""
        assert train.names is not None  # written with the images
        known = clients.groups(train.names.tolist())
        groups = np.array([known[name] for name in train.names.tolist()])
        return replace(train, groups=groups, stored_hash=None)
