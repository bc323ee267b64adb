"""Where data sets come from. Each source is one entry of a configuration's `dataset`."""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from bench.data.dataset import Dataset, Images, Labels, Samples
from bench.errors import UserError, unknown
from bench.frozen import Frozen


class Digits(Frozen):
    """scikit-learn's digits: 1,797 real 8×8 images in 10 classes, embedded in the library (no download).

    Every second image of each class, in the stored order, is a test image (896 of 1,797); the rest are training images.
    """

    name: Literal["digits"] = "digits"

    @property
    def label(self) -> str:
        """Its name in paths and tables."""
        return self.name

    def load(self) -> Dataset:
        """Pixels 0..16 as stored, normalised by the training images' mean and deviation."""
        # The file that sklearn.datasets.load_digits reads, without the second that importing scikit-learn takes.
        package = find_spec("sklearn")
        if package is None or not package.submodule_search_locations:
            raise UserError("data set digits is embedded in scikit-learn, which is not installed")
        file = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
        images = table[:, :64].astype(np.uint8).reshape(-1, 1, 8, 8)
        labels = np.ascontiguousarray(table[:, 64])
        position_in_class = np.empty(len(labels), dtype=np.int64)
        for c in range(10):
            members = np.flatnonzero(labels == c)
            position_in_class[members] = np.arange(len(members))
        test = position_in_class % 2 == 1
        return Dataset(
            "digits",
            Samples(images[~test], labels[~test]),
            Samples(images[test], labels[test]),
            10,
            16.0,
            (0.3048,),
            (0.3761,),
        )


class ImageFolder(Frozen):
    """Your own images: `root/train/<class>/*` and `root/test/<class>/*`, all of one size.

    Classes are the sorted folder names of `train`. Anything that Pillow reads is accepted, as RGB.
    """

    name: Literal["image_folder"] = "image_folder"
    root: Path

    @field_validator("root", mode="before")
    @classmethod
    def _expanded(cls, root: Any) -> Any:
        if not isinstance(root, str | Path):
            return root
        if not str(root).strip():
            raise UserError("root is empty (allowed: the path of a folder)")
        try:
            return Path(root).expanduser()
        except RuntimeError:
            raise UserError(f"root = '{root}': there is no such home folder") from None

    @property
    def label(self) -> str:
        """The folder's own name, with what does not belong in a label replaced by dashes."""
        return re.sub(r"[^A-Za-z0-9_.+-]+", "-", self.root.resolve().name).strip("-.") or self.name

    def load(self) -> Dataset:
        """Decode all images; a `UserError` names a missing folder, an unreadable or an odd-sized file."""
        classes = self._classes("train")
        train_images, train_labels = self._read("train", classes)
        test_images, test_labels = self._read("test", classes)
        if test_images.shape[1:] != train_images.shape[1:]:
            sizes = f"{test_images.shape[2:]}, the training images {train_images.shape[2:]}"
            raise UserError(f"the test images of '{self.root}' are {sizes}: all must be of one size")
        pixels = train_images / 255.0
        mean, std = pixels.mean(axis=(0, 2, 3)), pixels.std(axis=(0, 2, 3))
        return Dataset(
            self.label,
            Samples(train_images, train_labels),
            Samples(test_images, test_labels),
            len(classes),
            255.0,
            tuple(map(float, mean)),
            tuple(float(s) or 1.0 for s in std),
        )

    def _classes(self, part: str) -> list[str]:
        folder = self.root / part
        if not folder.is_dir():
            raise UserError(f"data set folder '{folder}' does not exist (expected: {part}/<class>/<image files>)")
        classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        if not classes:
            raise UserError(f"data set folder '{folder}' has no class folders (expected: {part}/<class>/<image files>)")
        return classes

    def _read(self, part: str, classes: list[str]) -> tuple[Images, Labels]:
        from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - only where image files are read

        extra = set(self._classes(part)) - set(classes)
        if extra:
            raise UserError(f"class '{min(extra)}' is in {self.root / part} but not in {self.root / 'train'}")
        images: list[Images] = []
        labels: list[int] = []
        for label, name in enumerate(classes):
            files = sorted((self.root / part / name).glob("*"))
            if not files:
                raise UserError(f"class '{name}' has no images in '{self.root / part}' (every class needs some there)")
            for file in files:
                try:
                    image = np.asarray(Image.open(file).convert("RGB"), dtype=np.uint8).transpose(2, 0, 1)
                except (UnidentifiedImageError, OSError):
                    raise UserError(f"'{file}' is not a readable image") from None
                if images and image.shape != images[0].shape:
                    raise UserError(f"'{file}' is {image.shape[1:]}, the images before it {images[0].shape[1:]}")
                images.append(image)
                labels.append(label)
        return np.stack(images), np.asarray(labels, dtype=np.int64)


Source = Annotated[Digits | ImageFolder, Field(discriminator="name")]
SOURCES: dict[str, type[Digits | ImageFolder]] = {"digits": Digits, "image_folder": ImageFolder}


def parse_source(dataset: Any) -> Digits | ImageFolder:
    """The source that a configuration's `dataset` means: a source's name, or a mapping of its name and fields."""
    if isinstance(dataset, Digits | ImageFolder):
        return dataset
    fields = dataset if isinstance(dataset, Mapping) else {"name": dataset}
    name = fields.get("name", "")
    if not isinstance(name, str) or name not in SOURCES:
        raise unknown("dataset", name, SOURCES)
    return SOURCES[name].parse(fields, where=f"dataset {name}")
