"""DomainNet (Peng et al. 2019) with its official lists of training and test images."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.sources.base import Facts
from fedflat.bench.data.sources.image_files.decoding import ImageFiles
from fedflat.bench.data.sources.image_files.domains import Listing, PublishedDomains
from fedflat.bench.data.sources.image_files.published_images import Piece
from fedflat.bench.input.content import read_own
from fedflat.bench.input.errors import UserError

SERVER = "http://csr.bu.edu/ftp/visda/2019/multi-source"
CLEANED = ("clipart", "painting")
"""Domains whose archive without duplicates is in a folder of its own; the lists belong to it."""

SUBSETS = ("train", "test")
TEST_IMAGES = {
    "clipart": 14_604,
    "infograph": 15_582,
    "painting": 21_850,
    "quickdraw": 51_750,
    "real": 52_041,
    "sketch": 20_916,
}
"""The lengths of the official lists of test images."""

LINE = re.compile(r"(\S+/\S.*\S) (\d+)")


class DomainNet(PublishedDomains):
    """DomainNet (Peng et al. 2019), the version without duplicates: 345 classes in 6 domains, 586,575 images.

    The official lists `<domain>_train.txt` and `<domain>_test.txt` say which images belong to it, and their classes.
    """

    shown_as: ClassVar[str] = "DomainNet"
    name: Literal["domainnet"] = "domainnet"
    lists: Literal["all", "official"] = Field(
        default="all",
        description="all: every image of a domain is trained, or is a test image; official: the training images are "
        "those of the other domains' training lists, the test images those of the held-out domain's test list",
    )

    folder: ClassVar[str] = "domainnet"
    folders: ClassVar[Mapping[str, tuple[str, int]]] = {
        "clipart": ("clipart", 48_129),
        "infograph": ("infograph", 51_605),
        "painting": ("painting", 72_266),
        "quickdraw": ("quickdraw", 172_500),
        "real": ("real", 172_947),
        "sketch": ("sketch", 69_128),
    }
    classes: ClassVar[int] = 345
    homepage: ClassVar[str] = "https://ai.bu.edu/M3SDA"
    licence: ClassVar[str] = "fair use, for research"

    @property
    def label(self) -> str:
        """For example domainnet-clipart, or domainnet-clipart-official."""
        return super().label + ("" if self.lists == "all" else f"-{self.lists}")

    @property
    def facts(self) -> Facts:
        """The published numbers of images, in the lists that are used."""
        every = super().facts
        if self.lists == "all":
            return every
        trained = every.train - sum(count for domain, count in TEST_IMAGES.items() if domain != self.test_domain)
        return replace(every, train=trained, test=TEST_IMAGES[self.test_domain])

    @classmethod
    def pieces(cls) -> tuple[Piece, ...]:
        """A folder and two lists for each domain."""
        found: list[Piece] = []
        for domain in cls.folders:
            archive = f"{SERVER}/{'groundtruth/' if domain in CLEANED else ''}{domain}.zip"
            found.append(Piece(f"{cls.folder}/{domain}", f"a folder of {cls.classes} class folders", archive))
            for subset in SUBSETS:
                name = f"{domain}_{subset}.txt"
                found.append(Piece(f"{cls.folder}/{name}", "a list of images", f"{SERVER}/domainnet/txt/{name}"))
        return tuple(found)

    def _checked(self, root: Path) -> Iterator[str]:
        official = self.model_copy(update={"lists": "official"}).listing(root)
        for domain in self.folders:
            official.require_classes(domain)
        yield from super()._checked(root)

    def listing(self, root: Path) -> Listing:
        """The images of all lists, one domain after another. Raises `UserError` for an invalid line."""
        base = self.base(root)
        names, labels, groups, trained = list[str](), list[int](), list[int](), list[bool]()
        places: dict[str, str] = {}
        lists = [(group, domain, subset) for group, domain in enumerate(self.folders) for subset in SUBSETS]
        for group, domain, subset in lists:
            rows = _rows(base / f"{domain}_{subset}.txt", domain, self.classes, places)
            names += [name for name, _ in rows]
            labels += [label for _, label in rows]
            groups += [group] * len(rows)
            trained += [subset == "train"] * len(rows)
        files = [base / name for name in names]
        texts = tuple(base / f"{domain}_{subset}.txt" for _, domain, subset in lists)
        of_train = np.array(trained)
        every = np.ones(len(files), dtype=bool)
        train, test = (every, every) if self.lists == "all" else (of_train, ~of_train)
        listed = ImageFiles(files, np.array(labels), names, np.array(groups), texts)
        return Listing(listed, tuple(self.folders), self.classes, train, test)


def _rows(file: Path, domain: str, classes: int, places: dict[str, str]) -> list[tuple[str, int]]:
    """The names and labels of a list, whose lines are such as `clipart/axe/clipart_011_000001.jpg 11`.

    `places`: by image, the list and line that name it; those of this list are added. A `UserError` if one is there.
    """
    rows: list[tuple[str, int]] = []
    text = read_own(file, "list of images").decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), start=1):
        found = LINE.fullmatch(line.strip())
        if not line.strip():
            continue
        if found is None or int(found[2]) >= classes or not _is_below(found[1], domain):
            raise UserError(
                f"'{file}', line {number}: '{line.strip()}' (allowed: {domain}/<class>/<file>, a space, and a label "
                f"from 0 to {classes - 1})"
            )
        if found[1] in places:
            raise UserError(f"'{file}', line {number}: '{found[1]}' is listed already, in {places[found[1]]}")
        places[found[1]] = f"'{file.name}', line {number}"
        rows.append((found[1], int(found[2])))
    if not rows:
        raise UserError(f"'{file}' lists no images")
    return rows


def _is_below(name: str, domain: str) -> bool:
    parts = name.split("/")
    return parts[0] == domain and len(parts) == 3 and ".." not in parts
