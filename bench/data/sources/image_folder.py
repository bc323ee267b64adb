"""User-defined images, in one folder per class."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from bench.data.cache import Cached, cached, signature
from bench.data.dataset import Dataset, Images, Samples, Subset
from bench.data.sources.base import Source, cache_place
from bench.files.column_file import read_columns, texts
from bench.input.content import KnownFile, expanded
from bench.input.errors import UserError
from bench.input.frozen import LABEL

CHUNK = 1000
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


class ImageFolder(Source):
    """User-defined images: `root/train/<class>/*` and `root/test/<class>/*`, all of one size.

    Classes are the sorted folder names in `train`. All formats that Pillow reads are accepted, with at most 8 bits per
    channel, and converted to RGB. The `clients` are the groups of the training images, which the partition by_group
    uses. The identity of a run depends on the name of the folder and on its images, not on its path.
    """

    name: Literal["image_folder"] = "image_folder"
    root: Path
    title: str = Field(
        default="", pattern=LABEL, description="the name in paths and tables; by default that of the folder"
    )
    clients: Clients | None = Field(default=None, description="a file with the client of each image; null: no groups")

    own: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not isinstance(data.get("root"), str | Path):
            return data
        root = expanded(data["root"], "root")
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", root.resolve().name).strip("-._+")
        return {"title": name or "image_folder", **data, "root": root}

    @property
    def label(self) -> str:
        """The title."""
        return self.title

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        return ("yours", "yours", "yours", "", "", "yours", "root/train/<class>/*, root/test/<class>/*")

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
        if test.samples.images.shape[1:] != train.samples.images.shape[1:]:
            sizes = f"{test.samples.images.shape[2:]}, but the training images are {train.samples.images.shape[2:]}"
            raise UserError(f"the test images of '{self.root}' are {sizes}: all must have one size")
        return Dataset(self.label, train.samples, test.samples, len(classes), 255.0, train.mean, train.std)

    def check(self, root: Path) -> Iterator[str]:
        """Decodes every image without storing it."""
        classes = self._classes("train")
        for subset in SUBSETS:
            files = self._files(subset, classes)
            count = sum(len(chunk) for chunk in _decoded(files))
            yield f"'{self.root / subset}': {count:,} images in {len(classes)} classes, ok"

    def _part(self, subset: Subset, classes: list[str], files: list[list[Path]], root: Path) -> Cached:
        base = self.root / subset
        key = {
            "source": self.name,
            "classes": classes,
            "files": signature([file for members in files for file in members], base),
        }
        place = cache_place(root, f"{self.label}-{subset}", str(self.root.resolve()))
        return cached(place, key, len(classes), lambda: _decoded(files))

    def _classes(self, subset: str) -> list[str]:
        folder = self.root / subset
        if not folder.is_dir():
            raise UserError(f"data set folder '{folder}' does not exist (expected: {subset}/<class>/<image files>)")
        classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        if not classes:
            raise UserError(
                f"data set folder '{folder}' has no class folders (expected: {subset}/<class>/<image files>)"
            )
        return classes

    def _files(self, subset: str, classes: list[str]) -> list[list[Path]]:
        """The sorted files of each class."""
        extra = set(self._classes(subset)) - set(classes)
        if extra:
            raise UserError(f"class '{min(extra)}' is in {self.root / subset} but not in {self.root / 'train'}")
        # File managers write hidden files.
        files = [sorted((self.root / subset / name).glob("[!.]*")) for name in classes]
        for name, members in zip(classes, files, strict=True):
            if not members:
                raise UserError(
                    f"class '{name}' has no images in '{self.root / subset}' (every class needs images there)"
                )
        return files

    def _with_groups(self, train: Samples, clients: Clients) -> Samples:
        """The same images with their clients as groups, which are part of the content hash."""
        assert train.names is not None  # written by _decoded
        known = clients.groups(train.names.tolist())
        groups = np.array([known[name] for name in train.names.tolist()])
        return replace(train, groups=groups, stored_hash=None)


def _decoded(files: list[list[Path]]) -> Iterator[Samples]:
    """All images, one class after another."""
    labelled = [(label, file) for label, members in enumerate(files) for file in members]
    shape = _decode(labelled[0][1]).shape
    for first in range(0, len(labelled), CHUNK):
        chunk = labelled[first : first + CHUNK]
        images = np.empty((len(chunk), *shape), np.uint8)
        for k, (_, file) in enumerate(chunk):
            image = _decode(file)
            if image.shape != shape:
                raise UserError(
                    f"'{file}' is {image.shape[1:]}, but the images before it are {shape[1:]} (all must have one size)"
                )
            images[k] = image
        names = [f"{file.parent.name}/{file.name}" for _, file in chunk]
        labels = np.array([label for label, _ in chunk], np.int64)
        yield Samples(images, labels, names=np.array(names))


def _decode(file: Path) -> Images:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - only where image files are read

    try:
        image = Image.open(file)
        if image.mode.startswith(("I", "F")):  # Pillow would clip their values at 255
            raise UserError(f"'{file}' has more than 8 bits per channel (mode {image.mode}); convert it")
        return np.asarray(image.convert("RGB"), dtype=np.uint8).transpose(2, 0, 1)
    except (UnidentifiedImageError, OSError, SyntaxError):  # Pillow raises SyntaxError for damaged PNG files
        raise UserError(f"'{file}' is not a readable image; repair it or remove it from the folder") from None
