"""A user's own images, in folders by class."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, field_validator

from bench.data.cache import Cached, cached, signature
from bench.data.dataset import Dataset, Images, Samples
from bench.data.sources.base import Part, Source, cache_place
from bench.errors import UserError

CHUNK = 1000


class ImageFolder(Source):
    """Your own images: `root/train/<class>/*` and `root/test/<class>/*`, all of one size.

    Classes are the sorted folder names of `train`. Anything that Pillow reads is accepted, as RGB. With `clients`, a
    CSV with the columns client and filename (below `train`, as cat/0001.jpg) says whose each training image is: its
    clients are the images' groups, and partition by_group takes them as they are.
    """

    name: Literal["image_folder"] = "image_folder"
    root: Path
    clients: Path | None = Field(default=None, description="a CSV of client and filename; null: no groups")

    @field_validator("root", "clients", mode="before")
    @classmethod
    def _expanded(cls, path: Any) -> Any:
        if not isinstance(path, str | Path):
            return path
        if not str(path).strip():
            raise UserError("root is empty (allowed: the path of a folder)")
        try:
            return Path(path).expanduser()
        except RuntimeError:
            raise UserError(f"root = '{path}': there is no such home folder") from None

    @property
    def label(self) -> str:
        """The folder's own name, with what does not belong in a label replaced by dashes."""
        return re.sub(r"[^A-Za-z0-9_.+-]+", "-", self.root.resolve().name).strip("-.") or self.name

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255, normalised by the training images' own mean and deviation.

        A `UserError` names a missing folder, an unreadable or an odd-sized file.
        """
        classes = self._classes("train")
        train, test = self._part("train", classes, root), self._part("test", classes, root)
        if test.samples.images.shape[1:] != train.samples.images.shape[1:]:
            sizes = f"{test.samples.images.shape[2:]}, the training images {train.samples.images.shape[2:]}"
            raise UserError(f"the test images of '{self.root}' are {sizes}: all must be of one size")
        return Dataset(self.label, train.samples, test.samples, len(classes), 255.0, train.mean, train.std)

    def check(self, root: Path) -> Iterator[str]:
        """Decode every image, and keep none."""
        classes = self._classes("train")
        for part in ("train", "test"):
            files = self._files(part, classes)
            count = sum(len(chunk) for chunk in _decoded(files, None))
            yield f"'{self.root / part}': {count:,} images in {len(classes)} classes, ok"

    def _part(self, part: Part, classes: list[str], root: Path) -> Cached:
        files = self._files(part, classes)
        base = self.root / part
        groups: dict[str, int] | None = None
        key: dict[str, object] = {"source": self.name, "classes": classes}
        key["files"] = signature([file for members in files for file in members], base)
        if self.clients is not None and part == "train":
            groups = self._groups([f"{file.parent.name}/{file.name}" for members in files for file in members])
            key["groups"] = groups
        place = cache_place(root, f"{self.label}-{part}", f"{self.root.resolve()}:{self.clients}")
        return cached(place, key, len(classes), lambda: _decoded(files, groups))

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

    def _groups(self, names: list[str]) -> dict[str, int]:
        """The number of each training image's client, clients in sorted order; every image must be somebody's."""
        assert self.clients is not None  # the caller asks only then
        try:
            table = pd.read_csv(self.clients, usecols=["client", "filename"], dtype={"filename": str})
        except (OSError, ValueError) as error:
            raise UserError(f"'{self.clients}' is no CSV with the columns client and filename: {error}") from None
        twice = table["filename"][table["filename"].duplicated()]
        if len(twice):
            raise UserError(f"'{self.clients}' names {twice.iloc[0]} twice")
        if unknown := sorted(set(table["filename"]) - set(names)):
            raise UserError(f"'{self.clients}' names {unknown[0]}, which is not in '{self.root / 'train'}'")
        if missing := sorted(set(names) - set(table["filename"])):
            raise UserError(f"'{self.clients}' does not say whose {missing[0]} is")
        numbers = {client: k for k, client in enumerate(sorted(table["client"].unique()))}
        return dict(zip(table["filename"], map(numbers.__getitem__, table["client"]), strict=True))


def _decoded(files: list[list[Path]], groups: dict[str, int] | None) -> Iterator[Samples]:
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
        whose: NDArray[np.int64] | None = None if groups is None else np.array([groups[name] for name in names])
        yield Samples(images, labels, whose, np.array(names))


def _decode(file: Path) -> Images:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - only where image files are read

    try:
        return np.asarray(Image.open(file).convert("RGB"), dtype=np.uint8).transpose(2, 0, 1)
    except (UnidentifiedImageError, OSError, SyntaxError):  # the last one from damaged PNG files
        raise UserError(f"'{file}' is not a readable image") from None
