"""Landmarks-User-160k (Hsu et al. 2020): Google Landmarks v2, whose authors are the clients."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bench.data.cache import Cached
from bench.data.dataset import Dataset, Subset
from bench.data.sources.base import Facts, cache_place
from bench.data.sources.image_files.decoding import IMAGENET_MEAN, IMAGENET_STD, ImageFiles, Side
from bench.data.sources.image_files.published_images import Piece, PublishedImages, compared
from bench.files.column_file import integers, read_columns, texts
from bench.input.content import read_own
from bench.input.errors import UserError

LISTS: dict[Subset, str] = {"train": "federated_train.csv", "test": "test.csv"}
CLASSES = 2028
FOLDER, LISTED = "google-landmarks-v2", "landmarks-user-160k"
IMAGE_ID = re.compile(r"[0-9A-Za-z]{3,64}")


class LandmarksUser160k(PublishedImages):
    """Landmarks-User-160k (Hsu et al. 2020): 164,172 photographs of 1,262 authors in 2,028 classes.

    The federated lists are those that TensorFlow Federated uses, with 19,526 test images; the images are those of
    Google Landmarks v2, in its own folders: train/a/b/c/abc….jpg. Groups are the authors, sorted as texts. Images are
    normalised with ImageNet's mean and deviation.
    """

    name: Literal["landmarks_user_160k"] = "landmarks_user_160k"
    size: Side = Field(default=224, description="height and width of the stored images, in pixels")

    homepage: ClassVar[str] = "https://github.com/google-research/google-research/tree/master/federated_vision_datasets"
    licence: ClassVar[str] = "of each image: see Google Landmarks v2"
    facts: ClassVar[Facts] = Facts(164_172, 19_526, CLASSES, (3, 224, 224))

    @classmethod
    def pieces(cls) -> tuple[Piece, ...]:
        """Two lists, and the folder of the images."""
        lists = "http://storage.googleapis.com/gresearch/federated-vision-datasets/landmarks-user-160k.zip"
        return (
            Piece(f"{LISTED}/{LISTS['train']}", "a list with the columns user_id, image_id and class", lists),
            Piece(f"{LISTED}/{LISTS['test']}", "a list with the columns image_id and class", lists),
            Piece(
                f"{FOLDER}/train",
                "a folder with an image a/b/c/abc….jpg for each id abc… in the lists",
                "https://github.com/cvdfoundation/google-landmark (images_000.tar to images_499.tar)",
            ),
        )

    @classmethod
    def counts(cls) -> tuple[str, str, int]:
        """See `PublishedImages`."""
        images, _, classes, _ = cls.facts.texts()
        return images, classes, cls.facts.train + cls.facts.test

    def places(self, root: Path) -> list[Path]:
        """One for each subset."""
        return [self._place(subset, root) for subset in LISTS]

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255."""
        self.require(root)
        train, test = (self._part(subset, files, root).samples for subset, files in self._listed(root).items())
        return Dataset(self.label, train, test, self.facts.classes, 255.0, IMAGENET_MEAN, IMAGENET_STD)

    def _checked(self, root: Path) -> Iterator[str]:
        for subset, files in self._listed(root).items():
            files.require()
            count = sum(len(chunk) for chunk in files.decoded(self.size))
            yield f"{subset}: {compared(count, self.facts.train if subset == 'train' else self.facts.test)}"

    def _place(self, subset: Subset, root: Path) -> Path:
        return cache_place(root, f"{self.name}-{subset}", f"size={self.size}")

    def _part(self, subset: Subset, files: ImageFiles, root: Path) -> Cached:
        return files.stored(self._place(subset, root), root, self.size, self.facts.classes, {"source": self.name})

    def _listed(self, root: Path) -> dict[Subset, ImageFiles]:
        """The images of both lists; wrong lists are reported before work begins."""
        places: dict[str, str] = {}
        return {subset: _image_files(root / LISTED / name, root, subset, places) for subset, name in LISTS.items()}


def _image_files(file: Path, root: Path, subset: Subset, places: dict[str, str]) -> ImageFiles:
    """The images of a list. `places`: by image, the list and row that name it; those of this list are added.

    A `UserError` for a list with other columns, a wrong label or id, or an image that is there already.
    """
    what = f"the list '{file}'"
    columns = read_columns(read_own(file, "list"), what)
    names, labels = texts(columns, "image_id", what), integers(columns, "class", what)
    for row, (name, label) in enumerate(zip(names.tolist(), labels.tolist(), strict=True), start=1):
        where = f"{what}, row {row}"
        if not IMAGE_ID.fullmatch(name):
            raise UserError(f"{where}: image_id = '{name}' (allowed: at least three letters and digits)")
        if not 0 <= label < CLASSES:
            raise UserError(f"{where}: class = {label} (allowed: 0 to {CLASSES - 1})")
        if name in places:
            raise UserError(f"{where}: image_id = '{name}' is listed already, in {places[name]}")
        places[name] = f"'{file.name}', row {row}"
    groups = np.unique(texts(columns, "user_id", what), return_inverse=True)[1] if subset == "train" else None
    folder = root / FOLDER / "train"
    files = [folder / name[0] / name[1] / name[2] / f"{name}.jpg" for name in names.tolist()]
    return ImageFiles(files, labels, names.tolist(), groups, (file,))
