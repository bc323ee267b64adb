"""Landmarks-User-160k (Hsu et al. 2020): Google Landmarks v2, whose authors are the clients."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.centre import centre_shape
from fedflat.bench.data.dataset import Dataset, Subset
from fedflat.bench.data.origin import File, Origin
from fedflat.bench.data.sources.base import Facts, Listed, cache_place
from fedflat.bench.data.sources.image_files.decoding import IMAGENET_MEAN, IMAGENET_STD, ImageFiles, Side
from fedflat.bench.data.sources.image_files.margins import Margins
from fedflat.bench.data.sources.image_files.published_images import Piece, PublishedImages, compared
from fedflat.bench.files.column_file import integers, read_columns, texts
from fedflat.bench.input.content import read_own
from fedflat.bench.input.errors import UserError

LISTS: dict[Subset, str] = {"train": "federated_train.csv", "test": "test.csv"}
CLASSES = 2028
FOLDER, LISTED = "google-landmarks-v2", "landmarks-user-160k"
ARCHIVE = File(
    f"{LISTED}.zip",
    "53c36bd7d5fc12f927af2820b7e4a57c",
    f"http://storage.googleapis.com/gresearch/federated-vision-datasets/{LISTED}.zip",
)
"""The archive of both lists, with the checksum that TensorFlow Federated publishes."""

IMAGE_ID = re.compile(r"[0-9A-Za-z]{3,64}")


class LandmarksUser160k(Margins, PublishedImages):
    """Landmarks-User-160k (Hsu et al. 2020): 164,172 photographs of 1,262 authors in 2,028 classes.

    The federated lists are those that TensorFlow Federated uses, with 19,526 test images; the images are those of
    Google Landmarks v2, in its own folders: train/a/b/c/abc….jpg. Groups are the authors, sorted as texts. Images are
    normalised with ImageNet's mean and deviation.
    """

    shown_as: ClassVar[str] = "Landmarks-User-160k"
    name: Literal["landmarks_user_160k"] = "landmarks_user_160k"
    size: Side = Field(default=224, description="height and width of the stored images, in pixels")

    homepage: ClassVar[str] = "https://github.com/google-research/google-research/tree/master/federated_vision_datasets"
    licence: ClassVar[str] = "of each image: see Google Landmarks v2"
    classes: ClassVar[int] = CLASSES
    images: ClassVar[dict[Subset, int]] = {"train": 164_172, "test": 19_526}
    origin: ClassVar[Origin | None] = Origin(
        homepage, licence, tuple(File(f"{LISTED}/{name}") for name in LISTS.values()), ARCHIVE
    )

    @property
    def facts(self) -> Facts:
        """The published numbers of images."""
        return Facts(
            self.images["train"], self.images["test"], self.classes, centre_shape((3, self.size, self.size), self.crop)
        )

    @classmethod
    def pieces(cls) -> tuple[Piece, ...]:
        """Two lists, and the folder of the images."""
        archive, url = ARCHIVE.path, str(ARCHIVE.url)
        columns = {"train": "user_id, image_id and class", "test": "image_id and class"}
        return (
            *(
                Piece(f"{LISTED}/{name}", f"a list with the columns {columns[subset]}", url, archive=archive)
                for subset, name in LISTS.items()
            ),
            Piece(
                f"{FOLDER}/train",
                "a folder with an image a/b/c/abc….jpg for each id abc… in the lists",
                "https://github.com/cvdfoundation/google-landmark (images_000.tar to images_499.tar)",
            ),
        )

    @classmethod
    def counts(cls) -> tuple[str, str, int]:
        """See `PublishedImages`."""
        return " + ".join(f"{count:,}" for count in cls.images.values()), str(cls.classes), sum(cls.images.values())

    def places(self, root: Path) -> list[Path]:
        """One for each subset."""
        return [self._place(subset, root) for subset in LISTS]

    def listed(self, root: Path) -> Listed:
        """The authors of the training images."""
        files = self._listed(root)["train"]
        return Listed(len(files), files.groups)

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255."""
        listed = self._listed(root)
        # Missing images of either list are reported before those of the first one are decoded.
        keys = {subset: files.key(root, self.size, {"source": self.name}) for subset, files in listed.items()}
        train, test = (
            files.stored(self._place(subset, root), self.size, self.classes, keys[subset]).samples
            for subset, files in listed.items()
        )
        return Dataset(self.label, train, test, self.classes, 255.0, IMAGENET_MEAN, IMAGENET_STD, crop=self.crop)

    def _checked(self, root: Path) -> Iterator[str]:
        listed = self._listed(root)
        for files in listed.values():
            files.require()
        for subset, files in listed.items():
            count = sum(len(chunk) for chunk in files.decoded(self.size))
            yield f"{subset}: {compared(count, self.images[subset])}"

    def _place(self, subset: Subset, root: Path) -> Path:
        return cache_place(root, f"{self.name}-{subset}", f"size={self.size}")

    def _listed(self, root: Path) -> dict[Subset, ImageFiles]:
        """The images of both lists; wrong lists are reported before work begins."""
        self.provide(root)
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
