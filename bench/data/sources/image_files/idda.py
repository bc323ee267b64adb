"""IDDA (Alberti et al. 2020): synthetic street scenes of many domains with labels of all pixels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.sources.base import Facts
from fedflat.bench.data.sources.image_files.cityscapes import NAMES as CITYSCAPES
from fedflat.bench.data.sources.image_files.published_images import Piece
from fedflat.bench.data.sources.image_files.scenes import (
    Clients,
    SceneFiles,
    Scenes,
    Sides,
    classes_of,
    numbers_of,
    read_lists,
)
from fedflat.bench.input.errors import UserError

FOLDER = "idda/data"
CLASSES = np.array([255, 2, 4, 255, 11, 5, 0, 0, 1, 8, 13, 3, 7, 6, 255, 255, 15, 14, 12, 9, 10])
"""The class of each number of CARLA in FedDrive's 16 classes, which are those of Cityscapes; 255: none."""

NAMES = tuple(name for name in CITYSCAPES if name not in ("truck", "bus", "train"))
"""Their names."""

IDS = classes_of(numbers_of(CLASSES), last=23)
PARTS = {"seen": "test_user_same_domain", "unseen": "test_user_diff_domain"}
"""The test subsets, and their names in FedDrive's lists."""


class IDDA(Scenes):
    """IDDA in FedDrive's layout (Fantauzzo et al. 2022): 6,240 images of 105 domains in 16 classes.

    A domain is a town, a weather, and a car. `setting` says which domains no client has: those of another town
    (country), or those of rain (rainy). There are two test subsets: `seen` domains and `unseen` ones. Groups are
    the clients of FedDrive's lists: 90 (country) or 69 (rainy), with 48 images each, all of one domain if the split is
    heterogeneous.
    """

    shown_as: ClassVar[str] = "IDDA"
    name: Literal["idda"] = "idda"
    setting: Literal["country", "rainy"] = Field(description="which domains are unseen: country, or rainy")
    split: Literal["heterogeneous", "uniform"] = Field(
        default="heterogeneous", description="FedDrive's lists of clients: heterogeneous or uniform"
    )
    size: Sides = Field(default=(512, 928), description="height and width of the stored images, in pixels")

    classes: ClassVar[int] = 16
    class_names: ClassVar[tuple[str, ...]] = NAMES
    homepage: ClassVar[str] = "https://idda-dataset.github.io/home"
    licence: ClassVar[str] = "non-commercial; on request"

    @property
    def label(self) -> str:
        """For example idda-country-heterogeneous."""
        return f"{self.name}-{self.setting}-{self.split}"

    @property
    def stand_in(self) -> dict[str, Any]:
        """Scenes of digits, with another unseen domain for each setting."""
        return {"name": "digit_scenes", "unseen": "blue" if self.setting == "country" else "inverted"}

    @property
    def facts(self) -> Facts:
        """The published numbers of images."""
        train, test = (4320, 1920) if self.setting == "country" else (3312, 2928)
        return Facts(train, test, self.classes, (3, *self.size))

    @classmethod
    def counts(cls) -> tuple[str, str, int]:
        """See `PublishedImages`."""
        return "6,240 in 2 settings", str(cls.classes), 6240

    @classmethod
    def pieces(cls) -> tuple[Piece, ...]:
        """The folder of images, and FedDrive's two folders of lists."""
        lists = "https://github.com/Erosinho13/FedDrive (folder data/idda/data)"
        return (
            Piece(
                f"{FOLDER}/IDDAsmall",
                "a folder of domains, each with RGB/*.jpg and Semantic/*.png",
                f"{cls.homepage}/download",
            ),
            Piece(
                f"{FOLDER}/heterogeneous",
                "a folder with country and rainy, each with train/*.json and test/*.json",
                lists,
            ),
            Piece(
                f"{FOLDER}/uniform", "a folder with country and rainy, each with train/*.json and test/*.json", lists
            ),
        )

    @classmethod
    def variants(cls) -> list[Any]:
        """One setting: all have the same decoded images."""
        return [cls.parse({"setting": "country"})]

    def files(self, root: Path) -> SceneFiles:
        """The images of all domains, sorted."""
        base = root / FOLDER / "IDDAsmall"
        files = sorted(base.glob("*/RGB/*.jpg"))
        if not files:
            raise UserError(f"'{base}' has no images (expected: <domain>/RGB/*.jpg)")
        of_labels = [file.parents[1] / "Semantic" / f"{file.stem}.png" for file in files]
        return SceneFiles(files, of_labels, [file.relative_to(base).as_posix() for file in files], IDS, self.classes)

    def choices(self) -> list[Scenes]:
        """Both settings, each with both splits."""
        splits = [(setting, split) for setting in ("country", "rainy") for split in ("heterogeneous", "uniform")]
        return [self.model_copy(update={"setting": setting, "split": split}) for setting, split in splits]

    def lists(self, root: Path) -> Path:
        """By setting and split."""
        return root / FOLDER / self.split / self.setting

    def clients(self, root: Path, names: Sequence[str]) -> tuple[Clients, Clients]:
        """By FedDrive's lists."""
        lists = self.lists(root)
        train, test = (
            read_lists(lists / part, names, kind) for part, kind in (("train", "training"), ("test", "test"))
        )
        if sorted(test) != sorted(PARTS.values()):
            allowed = ", ".join(PARTS.values())
            raise UserError(f"the lists in '{lists / 'test'}' have the parts {', '.join(test)} (allowed: {allowed})")
        trained, tested = ({name for own in part.values() for name in own} for part in (train, test))
        if both := sorted(trained & tested):
            raise UserError(f"the lists in '{lists}' name '{both[0]}' as a training and as a test image")
        return train, {part: test[user] for part, user in PARTS.items()}
