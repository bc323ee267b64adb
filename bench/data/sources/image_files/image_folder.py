"""User-defined images, in one folder per class."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.centre import centre_shape
from fedflat.bench.data.dataset import Dataset, Labels, Subset
from fedflat.bench.data.sources.base import Form, Listed, cache_place
from fedflat.bench.data.sources.image_files.decoding import ImageFiles, Side, in_pixels
from fedflat.bench.data.sources.image_files.margins import Margins
from fedflat.bench.data.sources.image_files.own_folder import OwnFolder, files_of_class, folders_in
from fedflat.bench.files.column_file import read_columns, texts
from fedflat.bench.input.content import KnownFile
from fedflat.bench.input.errors import UserError

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
        examples=[64],
        default=None,
        description="height and width of the stored images; null: all images have the same size",
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
        # Wrong folders, sizes and clients, and missing files are reported before work begins.
        files = {subset: self._files(subset, classes) for subset in SUBSETS}
        self._check_sizes(*(of_subset.shape(self.size) for of_subset in files.values()))
        groups = self._groups(files["train"])
        keys = {
            subset: files[subset].key(self.root / subset, self.size, {"source": self.name, "classes": classes})
            for subset in SUBSETS
        }
        train, test = (
            files[subset].stored(self._place(subset, root), self.size, len(classes), keys[subset]) for subset in SUBSETS
        )
        samples = train.samples if groups is None else replace(train.samples, groups=groups, stored_hash=None)
        return Dataset(self.label, samples, test.samples, len(classes), 255.0, train.mean, train.std, crop=self.crop)

    def form(self, root: Path) -> Form:
        """The classes are folders of `train`; without `size`, the first image decides."""
        classes = self._classes("train")
        return Form(centre_shape(self._files("train", classes).shape(self.size), self.crop), len(classes))

    def listed(self, root: Path) -> Listed:
        """The clients of the file `clients`."""
        files = self._files("train", self._classes("train"))
        return Listed(len(files), self._groups(files))

    def check(self, root: Path) -> Iterator[str]:
        """Decodes every image without storing it."""
        classes = self._classes("train")
        found = {subset: self._files(subset, classes) for subset in SUBSETS}
        for files in found.values():
            files.require()
        self._check_sizes(*(files.shape(self.size) for files in found.values()))
        self._groups(found["train"])
        for subset, files in found.items():
            count = sum(len(chunk) for chunk in files.decoded(self.size))
            yield f"'{self.root / subset}': {count:,} images in {len(classes)} classes, ok"

    def _check_sizes(self, train: tuple[int, ...], test: tuple[int, ...]) -> None:
        if test != train:
            raise UserError(
                f"the test images of '{self.root}' have {in_pixels(test)}, but the training images have "
                f"{in_pixels(train)} (all must have one size, unless the data set has the key size, such as size: 224)"
            )

    def _place(self, subset: Subset, root: Path) -> Path:
        size = "" if self.size is None else f":{self.size}"
        return cache_place(root, f"{self.label}-{subset}", f"{self.root.resolve()}{size}")

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

    def _groups(self, train: ImageFiles) -> Labels | None:
        """The clients of the training images, which are part of the content hash; None without `clients`."""
        if self.clients is None:
            return None
        known = self.clients.groups(list(train.names))
        return np.array([known[name] for name in train.names])
