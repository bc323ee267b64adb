"""Cityscapes (Cordts et al. 2016): street scenes of German cities with labels of all pixels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from fedflat.bench.data.sources.base import Facts
from fedflat.bench.data.sources.image_files.published_images import Piece
from fedflat.bench.data.sources.image_files.scenes import Clients, SceneFiles, Scenes, classes_of, read_lists
from fedflat.bench.input.errors import UserError

FOLDER = "cityscapes/data"
TRAINED = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
"""The numbers (labelIds) of the 19 classes that are trained and evaluated, in their order."""

NAMES = (
    "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation", "terrain",
    "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
)  # fmt: skip
"""Their names."""

IDS = classes_of({number: label for label, number in enumerate(TRAINED)}, last=33)
SPLITS = ("heterogeneous", "uniform")
IMAGE, LABELS = "_leftImg8bit.png", "_gtFine_labelIds.png"


class Cityscapes(Scenes):
    """Cityscapes: 2,975 training and 500 test images (the official validation images) of 21 cities in 19 classes.

    The files are in the folders that FedDrive (Fantauzzo et al. 2022) uses. With `split`, the groups are the clients of
    FedDrive's lists: 144 in the heterogeneous split, whose clients are in one city each, with 2,904 of the training
    images; 146 in the uniform one. Without it, the groups are the 18 cities of the training images.
    """

    shown_as: ClassVar[str] = "Cityscapes"
    name: Literal["cityscapes"] = "cityscapes"
    split: Literal["heterogeneous", "uniform"] | None = Field(
        default=None, description="FedDrive's lists of clients: heterogeneous or uniform; null: one group per city"
    )

    classes: ClassVar[int] = 19
    class_names: ClassVar[tuple[str, ...]] = NAMES
    homepage: ClassVar[str] = "https://www.cityscapes-dataset.com"
    licence: ClassVar[str] = "non-commercial; registration"

    @property
    def label(self) -> str:
        """For example cityscapes, or cityscapes-uniform."""
        return self.name if self.split is None else f"{self.name}-{self.split}"

    @property
    def facts(self) -> Facts:
        """The published numbers of images; FedDrive's heterogeneous lists leave out 71 training images."""
        return Facts(2904 if self.split == "heterogeneous" else 2975, 500, self.classes, (3, *self.size))

    @classmethod
    def counts(cls) -> tuple[str, str, int]:
        """See `PublishedImages`."""
        return "2,975 + 500", str(cls.classes), 3475

    @classmethod
    def pieces(cls) -> tuple[Piece, ...]:
        """The folders of images and of labels, and FedDrive's folders of lists."""
        url, lists = f"{cls.homepage}/downloads", "https://github.com/Erosinho13/FedDrive (folder data/cityscapes/data)"
        images, labels = (f"{url} ({archive}_trainvaltest.zip)" for archive in ("leftImg8bit", "gtFine"))
        return (
            Piece(f"{FOLDER}/leftImg8bit", "a folder with train and val, each with folders of cities", images),
            Piece(f"{FOLDER}/gtFine", "a folder with the same folders, with files *_gtFine_labelIds.png", labels),
            *(
                Piece(f"{FOLDER}/{split}", f"a folder with train/*.json, for split: {split} only", lists, optional=True)
                for split in SPLITS
            ),
        )

    def needed(self) -> tuple[Piece, ...]:
        """The folders of images and labels, and with `split` that of its lists."""
        lists = f"{FOLDER}/{self.split}"
        return tuple(piece for piece in self.pieces() if not piece.optional or piece.path == lists)

    def choices(self) -> list[Scenes]:
        """By city, and with FedDrive's lists."""
        return [self.model_copy(update={"split": split}) for split in (None, *SPLITS)]

    def lists(self, root: Path) -> Path | None:
        """By split; cities need no lists."""
        return None if self.split is None else root / FOLDER / self.split

    def files(self, root: Path) -> SceneFiles:
        """The official training and validation images, sorted; also those that have labels, but are missing."""
        images, labels = (root / FOLDER / folder for folder in ("leftImg8bit", "gtFine"))
        files: list[Path] = []
        for part in ("train", "val"):
            found = set((images / part).glob(f"*/*{IMAGE}"))
            if not found:
                raise UserError(f"'{images / part}' has no images (expected: <city>/*{IMAGE})")
            labelled = (file.relative_to(labels).as_posix() for file in (labels / part).glob(f"*/*{LABELS}"))
            files += sorted(found | {images / (name.removesuffix(LABELS) + IMAGE) for name in labelled})
        names = [file.relative_to(images).as_posix() for file in files]
        of_labels = [labels / (name.removesuffix(IMAGE) + LABELS) for name in names]
        return SceneFiles(files, of_labels, names, IDS, self.classes)

    def clients(self, root: Path, names: Sequence[str]) -> tuple[Clients, Clients]:
        """By FedDrive's lists, or by city; the test images are one part."""
        folder = self.lists(root)
        if folder is not None:
            train = read_lists(folder / "train", [name for name in names if name.startswith("train/")], "training")
        else:
            train = {}
            for name in names:
                if name.startswith("train/"):
                    train.setdefault(name.split("/")[1], []).append(name)
        return train, {"": [name for name in names if name.startswith("val/")]}

    @classmethod
    def variants(cls) -> list[Any]:
        """By city: all have the same decoded images."""
        return [cls.parse({})]
