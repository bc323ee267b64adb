"""Street scenes with labels of all pixels, and FedDrive's lists of the clients' images."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedflat.bench.data.cache import cached, signature
from fedflat.bench.data.dataset import Dataset, Labels, Samples
from fedflat.bench.data.label_maps import UNLABELLED, LabelMaps, main_classes
from fedflat.bench.data.sources.base import Listed, cache_place
from fedflat.bench.data.sources.digit_scenes import STAND_IN_CLIENTS, DigitScenes
from fedflat.bench.data.sources.image_files.decoding import in_parts, in_pixels, opened
from fedflat.bench.data.sources.image_files.published_images import PublishedImages, compared
from fedflat.bench.input.content import read_own
from fedflat.bench.input.errors import UserError

Sides = tuple[Annotated[int, Field(ge=8, le=2048)], Annotated[int, Field(ge=8, le=2048)]]
"""Height and width of stored images, in pixels."""

MEAN = STD = (0.5, 0.5, 0.5)
"""Mean and deviation of each channel with which FedDrive's code normalises images for BiSeNetV2, in units of 255."""

Clients = dict[str, list[str]]
"""The names of the images of each client, or of each test subset."""


@dataclass(frozen=True)
class SceneFiles:
    """Images with their files of labels; `names` are those of the images in lists.

    `ids`: the class `[256]` of each number in files of labels, 255 for none, and −1 for numbers that must not occur.
    """

    files: Sequence[Path]
    label_files: Sequence[Path]
    names: Sequence[str]
    ids: NDArray[np.int64]
    classes: int

    def decoded(self, size: tuple[int, int]) -> Iterator[Samples]:
        """All scenes in chunks; raises `UserError` as `decode_scene`."""
        pairs = list(zip(self.files, self.label_files, strict=True))
        for part, scenes in in_parts(lambda pair: decode_scene(*pair, self.ids, size), pairs, lambda s: s[0].nbytes):
            images, maps = (np.stack(arrays) for arrays in zip(*scenes, strict=True))
            names = np.array(self.names[part])
            yield Samples(images, main_classes(maps, self.classes), names=names, maps=maps)

    def require(self) -> None:
        """Raises `UserError` if an image has no file of labels, or is missing itself."""
        for image, labels in zip(self.files, self.label_files, strict=True):
            if not image.is_file():
                raise UserError(f"'{image}' is missing: the image of the labels '{labels}'")
            if not labels.is_file():
                raise UserError(f"'{labels}' is missing: the labels of '{image}'")


def decode_scene(
    file: Path, label_file: Path, ids: NDArray[np.int64], size: tuple[int, int]
) -> tuple[NDArray[np.uint8], LabelMaps]:
    """An image as RGB `[3, height, width]`, and its classes `[height, width]`, both scaled to `size`.

    Images are interpolated (bilinear, with antialiasing); a label is that of the nearest pixel. Raises `UserError` if a
    file cannot be read, if both have different sizes, or if labels are colours or unknown numbers.
    """
    from PIL.Image import Resampling  # noqa: PLC0415 - only where image files are read

    shape = size[::-1]
    with opened(file) as image:
        whole = image.size
        pixels = np.asarray(image.convert("RGB").resize(shape, Resampling.BILINEAR), dtype=np.uint8)
    with opened(label_file) as labels:
        if labels.size != whole:
            raise UserError(
                f"'{file}' has {in_pixels(whole[::-1])}, but its labels, '{label_file}', have "
                f"{in_pixels(labels.size[::-1])}"
            )
        if labels.mode not in ("L", "P"):  # the numbers of a palette are classes: its colours do not matter
            raise UserError(
                f"'{label_file}' has the mode {labels.mode} (allowed: a number of a class per pixel, mode L or P)"
            )
        numbers = np.asarray(labels, dtype=np.uint8)
        unknown = np.flatnonzero(ids[np.unique(numbers)] < 0)
        if unknown.size:
            allowed = np.flatnonzero(ids >= 0)
            last, first = allowed[allowed < UNLABELLED].max(), np.unique(numbers)[unknown[0]]
            raise UserError(f"'{label_file}' has the number {first} (allowed: 0 to {last}, and {UNLABELLED})")
        scaled = np.asarray(labels.resize(shape, Resampling.NEAREST))
        return pixels.transpose(2, 0, 1), ids[scaled].astype(np.uint8)


class Scenes(PublishedImages):
    """The common base class. Values 0..255 of images become −1..1, as in FedDrive's code for BiSeNetV2.

    Increase `version` whenever a change of `decode_scene` changes the cached numbers.
    """

    label_maps: ClassVar[bool] = True
    version: ClassVar[int] = 1
    classes: ClassVar[int]

    split: Literal["heterogeneous", "uniform"] | None = None
    size: Sides = Field(default=(512, 1024), description="height and width of the stored images, in pixels")

    @abstractmethod
    def files(self, root: Path) -> SceneFiles:
        """All images, whichever are training images."""

    @abstractmethod
    def clients(self, root: Path, names: Sequence[str]) -> tuple[Clients, Clients]:
        """The training images of each client, or city, and the test images of each subset. `names`: of all images."""

    @abstractmethod
    def choices(self) -> Sequence["Scenes"]:
        """The data sets of all lists of clients, which have the same images."""

    @abstractmethod
    def lists(self, root: Path) -> Path | None:
        """The folder of the lists of clients; None if it needs none."""

    @property
    def stand_in(self) -> dict[str, Any]:
        """Scenes of digits."""
        return {"name": "digit_scenes"}

    def stand_in_groups(self, partition: Mapping[str, Any], most: int) -> dict[str, Any]:
        """Clients with scenes of one domain each; of all domains, for uniform lists."""
        clients = min(partition["clients"], most, STAND_IN_CLIENTS)
        return {"name": "iid", "clients": clients} if self.split == "uniform" else DigitScenes.by_domain(clients)

    def places(self, root: Path) -> list[Path]:
        """One, by the size of the images."""
        return [cache_place(root, self.name, "size={}x{}".format(*self.size))]

    def listed(self, root: Path) -> Listed:
        """The clients, or cities, of FedDrive's lists or of the folders."""
        self.require(root)
        train, _ = self.clients(root, self.files(root).names)
        return Listed(sum(map(len, train.values())), _groups(train))

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255. Groups of training images are the clients, or cities."""
        self.require(root)
        found = self.files(root)
        train, test = self.clients(root, found.names)  # wrong lists are reported before work begins
        positions = {name: position for position, name in enumerate(found.names)}
        (place,) = self.places(root)
        found.require()
        key = {"source": self.name, "version": self.version, "size": list(self.size)}
        key["files"] = signature([*found.files, *found.label_files], root)
        whole = cached(place, key, self.classes, lambda: found.decoded(self.size)).samples
        at = [np.array([positions[name] for own in part.values() for name in own]) for part in (train, test)]
        edges = np.cumsum([len(own) for own in test.values()])[:-1]
        parts = dict(zip(test, np.split(np.arange(len(at[1])), edges), strict=True)) if len(test) > 1 else {}
        subsets = whole.at(at[0], _groups(train)), whole.at(at[1], None)
        return Dataset(self.label, *subsets, self.classes, 255.0, MEAN, STD, parts)

    def _checked(self, root: Path) -> Iterator[str]:
        found = self.files(root)
        found.require()
        for choice in self.choices():  # before the images, whose decoding takes long
            lists = choice.lists(root)
            if lists is not None and not lists.is_dir():
                yield f"{choice.label}: cannot be used, because '{lists}' is missing"
                continue
            train, test = choice.clients(root, found.names)
            yield f"{choice.label}: {sum(map(len, train.values())):,} training images of {len(train)} clients"
            for part, names in test.items():
                yield f"{choice.label}: {len(names):,} test images{f', {part}' if len(test) > 1 else ''}"
        count = sum(len(chunk) for chunk in found.decoded(self.size))
        yield f"images: {compared(count, self.counts()[2])}"


def _groups(clients: Clients) -> Labels:
    """The number of the client of each image."""
    return np.repeat(np.arange(len(clients)), [len(own) for own in clients.values()])


def read_lists(folder: Path, names: Sequence[str], kind: str) -> Clients:
    """The images of each client in FedDrive's lists, all JSON files of a folder: users, and user_data with x and y.

    Raises `UserError` if there are none, if one is damaged, or if it names an absent image, or one twice.
    """
    files = sorted(folder.glob("*.json"), key=lambda file: (len(file.name), file.name))
    if not files:
        raise UserError(f"'{folder}' has no lists of {kind} images (allowed: FedDrive's JSON files)")
    known, taken = set(names), dict[str, str]()
    clients: Clients = {}
    for file in files:
        for client, own in _users(file).items():
            if client in clients or not own:
                raise UserError(f"'{file}': the client '{client}' {'has no images' if not own else 'is listed twice'}")
            for name in own:
                if name not in known:
                    raise UserError(f"'{file}' names the image '{name}', which is missing")
                if name in taken:
                    raise UserError(f"'{file}' names the image '{name}' twice, for '{taken[name]}' and '{client}'")
                taken[name] = client
            clients[client] = own
    return clients


def _users(file: Path) -> Clients:
    try:
        content = json.loads(read_own(file, "list"))
        users: Mapping[str, Any] = content["user_data"]
        found = {str(user): list(users[user]["x"]) for user in content["users"]}
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"'{file}' is no list of FedDrive (expected: JSON with users, and user_data with x and y)"
        ) from None
    if not all(isinstance(name, str) for own in found.values() for name in own):
        raise UserError(f"'{file}': x of a client are not names of images")
    return found


def classes_of(numbers: Mapping[int, int], last: int) -> NDArray[np.int64]:
    """`SceneFiles.ids`: the class of some of the numbers 0..last; the others, and 255, have none."""
    ids = np.full(256, -1, dtype=np.int64)
    ids[: last + 1] = ids[UNLABELLED] = UNLABELLED
    for number, label in numbers.items():
        ids[number] = label
    return ids


def numbers_of(labels: Labels) -> Mapping[int, int]:
    """The class of each number, from their list in which 255 is no class."""
    return {number: int(label) for number, label in enumerate(labels) if label != UNLABELLED}
