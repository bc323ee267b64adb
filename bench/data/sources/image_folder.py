"""A user's own images, in folders by class."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from bench.data.cache import Cached, cached, signature
from bench.data.dataset import Dataset, Images, Samples
from bench.data.sources.base import Source, Subset, cache_place
from bench.files.column_file import read_columns, texts
from bench.input.content import KnownFile, expanded
from bench.input.errors import UserError
from bench.input.frozen import LABEL

CHUNK = 1000
SUBSETS: tuple[Subset, ...] = ("train", "test")


class Clients(KnownFile):
    """A CSV with the columns client and filename (below `train`, as cat/0001.jpg): whose each training image is."""

    kind: ClassVar[str] = "clients file"

    def groups(self, names: list[str]) -> dict[str, int]:
        """The number of each image's client, clients in sorted order; every image must be somebody's."""
        what = self.what
        columns = read_columns(self.content(), what)
        clients, files = (texts(columns, name, what) for name in ("client", "filename"))
        images, counts = np.unique(files, return_counts=True)
        if (twice := images[counts > 1]).size:
            raise UserError(f"{what} names {twice[0]} twice")
        if unknown := sorted(set(files) - set(names)):
            raise UserError(f"{what} names {unknown[0]}, which is no training image")
        if missing := sorted(set(names) - set(files)):
            raise UserError(f"{what} does not say whose {missing[0]} is")
        numbers = np.unique(clients, return_inverse=True)[1]
        return dict(zip(files.tolist(), numbers.tolist(), strict=True))


class ImageFolder(Source):
    """Your own images: `root/train/<class>/*` and `root/test/<class>/*`, all of one size.

    Classes are the sorted folder names of `train`. What Pillow reads is accepted as RGB, but not more than 8 bits per
    channel. The `clients` are the training images' groups, and partition by_group takes them as they are. A run is
    known by the folder's name and its images, not by its place.
    """

    name: Literal["image_folder"] = "image_folder"
    root: Path
    title: str = Field(default="", pattern=LABEL, description="its name in paths and tables; default: the folder's own")
    clients: Clients | None = Field(default=None, description="the file that says whose each image is; null: no groups")

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
        """Its title."""
        return self.title

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255, normalised by the training images' own mean and deviation.

        A `UserError` names a missing folder, an unreadable or an odd-sized file.
        """
        classes = self._classes("train")
        files = {part: self._files(part, classes) for part in SUBSETS}  # what is wrong with folders is told before work
        train, test = (self._part(part, classes, files[part], root) for part in SUBSETS)
        if self.clients is not None:
            train = replace(train, samples=self._with_groups(train.samples, self.clients))
        if test.samples.images.shape[1:] != train.samples.images.shape[1:]:
            sizes = f"{test.samples.images.shape[2:]}, the training images {train.samples.images.shape[2:]}"
            raise UserError(f"the test images of '{self.root}' are {sizes}: all must be of one size")
        return Dataset(self.label, train.samples, test.samples, len(classes), 255.0, train.mean, train.std)

    def check(self, root: Path) -> Iterator[str]:
        """Decode every image, and keep none."""
        classes = self._classes("train")
        for part in SUBSETS:
            files = self._files(part, classes)
            count = sum(len(chunk) for chunk in _decoded(files))
            yield f"'{self.root / part}': {count:,} images in {len(classes)} classes, ok"

    def _part(self, part: Subset, classes: list[str], files: list[list[Path]], root: Path) -> Cached:
        base = self.root / part
        key = {
            "source": self.name,
            "classes": classes,
            "files": signature([file for members in files for file in members], base),
        }
        place = cache_place(root, f"{self.label}-{part}", str(self.root.resolve()))
        return cached(place, key, len(classes), lambda: _decoded(files))

    def _classes(self, part: str) -> list[str]:
        folder = self.root / part
        if not folder.is_dir():
            raise UserError(f"data set folder '{folder}' does not exist (expected: {part}/<class>/<image files>)")
        classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        if not classes:
            raise UserError(f"data set folder '{folder}' has no class folders (expected: {part}/<class>/<image files>)")
        return classes

    def _files(self, part: str, classes: list[str]) -> list[list[Path]]:
        """The files of each class, sorted."""
        extra = set(self._classes(part)) - set(classes)
        if extra:
            raise UserError(f"class '{min(extra)}' is in {self.root / part} but not in {self.root / 'train'}")
        # Hidden files are those of file managers.
        files = [sorted((self.root / part / name).glob("[!.]*")) for name in classes]
        for name, members in zip(classes, files, strict=True):
            if not members:
                raise UserError(f"class '{name}' has no images in '{self.root / part}' (every class needs some there)")
        return files

    def _with_groups(self, train: Samples, clients: Clients) -> Samples:
        """The same images, each with its client, which their hash counts too."""
        assert train.names is not None  # written by _decoded
        known = clients.groups(train.names.tolist())
        groups = np.array([known[name] for name in train.names.tolist()])
        return replace(train, groups=groups, stored_hash=None)


def _decoded(files: list[list[Path]]) -> Iterator[Samples]:
    """All images, class after class."""
    labelled = [(label, file) for label, members in enumerate(files) for file in members]
    shape = _decode(labelled[0][1]).shape
    for first in range(0, len(labelled), CHUNK):
        chunk = labelled[first : first + CHUNK]
        images = np.empty((len(chunk), *shape), np.uint8)
        for k, (_, file) in enumerate(chunk):
            image = _decode(file)
            if image.shape != shape:
                raise UserError(f"'{file}' is {image.shape[1:]}, the images before it {shape[1:]}")
            images[k] = image
        names = [f"{file.parent.name}/{file.name}" for _, file in chunk]
        labels = np.array([label for label, _ in chunk], np.int64)
        yield Samples(images, labels, names=np.array(names))


def _decode(file: Path) -> Images:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - only where image files are read

    try:
        image = Image.open(file)
        if image.mode.startswith(("I", "F")):  # as RGB, Pillow would cut their values off at 255
            raise UserError(f"'{file}' has more than 8 bits per channel (mode {image.mode}); convert it")
        return np.asarray(image.convert("RGB"), dtype=np.uint8).transpose(2, 0, 1)
    except (UnidentifiedImageError, OSError, SyntaxError):  # the last one from damaged PNG files
        raise UserError(f"'{file}' is not a readable image; mend it or take it out of the folder") from None
