"""Images of several domains in folders `<domain>/<class>/*`: OfficeHome, PACS, VLCS, and those of a user."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedflat.bench.data.cache import Cached
from fedflat.bench.data.centre import centre_shape
from fedflat.bench.data.dataset import Dataset, Labels
from fedflat.bench.data.sources.base import Facts, Form, Listed, Source, cache_place
from fedflat.bench.data.sources.digits_domains import DigitsDomains
from fedflat.bench.data.sources.held_out import HeldOutDomain, domain_name
from fedflat.bench.data.sources.image_files.decoding import IMAGENET_MEAN, IMAGENET_STD, ImageFiles, Side
from fedflat.bench.data.sources.image_files.margins import Margins
from fedflat.bench.data.sources.image_files.own_folder import OwnFolder, files_of_class, folders_in
from fedflat.bench.data.sources.image_files.published_images import Piece, PublishedImages, compared
from fedflat.bench.input.errors import UserError, first_few, unknown

LAYOUT = "<domain>/<class>/<image files>"


@dataclass(frozen=True)
class Listing:
    """The image files of all domains, whose groups are numbers of `domains`; `train` and `test` `[n]`: which may be
    trained, and which may be test images."""

    files: ImageFiles
    domains: Sequence[str]
    classes: int
    train: NDArray[np.bool_]
    test: NDArray[np.bool_]

    @property
    def groups(self) -> Labels:
        """The number of the domain of each image."""
        assert self.files.groups is not None  # of all domains
        return self.files.groups

    def require_classes(self, test_domain: str) -> None:
        """Raises `UserError` if a class has no training image when this domain is held out."""
        labels, lists = self.files.labels, self.files.lists
        trained = self.train & (self.groups != self.domains.index(test_domain))
        absent = np.setdiff1d(np.arange(self.classes), labels[trained])
        if not absent.size:
            return
        label = int(absent[0])
        known = np.flatnonzero(labels == label)
        name = f" '{self.files.names[known[0]].split('/')[-2]}'" if known.size else ""
        listed = f" (label {label} in {first_few([file.name for file in lists])})" if lists else ""
        raise UserError(
            f"class{name}{listed} has no training image outside the held-out domain {test_domain} (all classes need "
            "one)"
        )


class Domains(HeldOutDomain, Margins):
    """The common base class. Images are decoded once, whichever domain is held out.

    Images are scaled to `size`, and normalised with ImageNet's mean and deviation, as pre-trained models need it.
    """

    size: Side = Field(default=224, description="height and width of the stored images, in pixels")

    @abstractmethod
    def listing(self, root: Path) -> Listing:
        """The image files of all domains. Raises `UserError` if a folder is missing or empty."""

    @abstractmethod
    def base(self, root: Path) -> Path:
        """The folder of the domains."""

    @abstractmethod
    def place(self, root: Path) -> Path:
        """The folder of the decoded images."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of what models see."""
        return centre_shape((3, self.size, self.size), self.crop)

    def listed(self, root: Path) -> Listed:
        """The domains of the training images."""
        found, train, _ = self._divided(root)
        return Listed(int(train.sum()), found.groups[train])

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255: the test images are those of the held-out domain."""
        found, train, test = self._divided(root)
        whole = self._stored(found, root).samples
        parts = whole.selected(train), whole.selected(test)
        return Dataset(self.label, *parts, found.classes, 255.0, IMAGENET_MEAN, IMAGENET_STD, crop=self.crop)

    def _divided(self, root: Path) -> tuple[Listing, NDArray[np.bool_], NDArray[np.bool_]]:
        """The listed images, which of them are training images, and which are test images. No image is read."""
        self.require(root)
        found = self.listing(root)
        if self.test_domain not in found.domains:
            raise unknown(f"domain in '{self.base(root)}'", self.test_domain, found.domains)
        found.require_classes(self.test_domain)
        held_out = found.groups == found.domains.index(self.test_domain)
        return found, found.train & ~held_out, found.test & held_out

    def _stored(self, found: Listing, root: Path) -> Cached:
        key = found.files.key(self.base(root), self.size, {"source": self.name})
        return found.files.stored(self.place(root), self.size, found.classes, key)

    def _reported(self, root: Path, published: Mapping[str, int]) -> Iterator[str]:
        """Decodes every image without storing it, and reports on each domain."""
        found = self.listing(root)
        found.files.require()
        for domain in found.domains:
            found.require_classes(domain)
        chunks = (chunk.groups for chunk in found.files.decoded(self.size) if chunk.groups is not None)
        counts = np.sum([np.bincount(groups, minlength=len(found.domains)) for groups in chunks], axis=0)
        for domain, count in zip(found.domains, counts.tolist(), strict=True):
            yield f"{domain}: {compared(count, published.get(domain, count))}"


def listed_folders(base: Path, folders: Mapping[str, str]) -> Listing:
    """The images in the folders of the domains, which all have the same classes; `folders`: by the domain's name."""
    expected = f"{base.name}/{LAYOUT}"
    classes = {domain: folders_in(base / folder, "class", expected) for domain, folder in folders.items()}
    first = next(iter(classes))
    for domain, own in classes.items():
        differing = set(own) ^ set(classes[first])
        if differing:
            name = min(differing)
            here, there = (first, domain) if name in classes[first] else (domain, first)
            raise UserError(
                f"class '{name}' is in '{base / folders[here]}' but not in '{base / folders[there]}' (every domain "
                "needs the same classes)"
            )
    files: list[Path] = []
    labels, groups = list[int](), list[int]()
    for group, folder in enumerate(folders.values()):
        for label, name in enumerate(classes[first]):
            members = files_of_class(base / folder, name)
            files += members
            labels += [label] * len(members)
            groups += [group] * len(members)
    names = ["/".join(file.parts[-3:]) for file in files]
    listed = ImageFiles(files, np.array(labels), names, np.array(groups))
    every = np.ones(len(files), dtype=bool)
    return Listing(listed, tuple(folders), len(classes[first]), every, every)


class DomainFolder(Domains, OwnFolder):
    """User-defined images of several domains: `root/<domain>/<class>/*`, of any size.

    The names of the domains are those of their folders, in lower-case letters, digits and _. Every domain must have the
    same classes. All formats that Pillow reads are accepted, with at most 8 bits per channel, and converted to RGB. The
    identity of a run depends on the name of the folder and on its images, not on its path.
    """

    name: Literal["domain_folder"] = "domain_folder"

    layout: ClassVar[str] = "root/<domain>/<class>/*"

    @property
    def label(self) -> str:
        """The title and the held-out domain."""
        return f"{self.title}-{self.test_domain}"

    @classmethod
    def first_of(cls, folder: Path) -> Source:
        """The data set in this folder, with its first domain held out."""
        return cls.parse({"root": folder, "test_domain": next(iter(_domains(folder)))})

    def base(self, root: Path) -> Path:
        """The folder of the user."""
        return self.root

    def form(self, root: Path) -> Form:
        """The classes are folders of the first domain."""
        first = self.root / next(iter(_domains(self.root).values()))
        return Form(self.input_shape, len(folders_in(first, "class", f"{self.root.name}/{LAYOUT}")))

    def decoded_as(self, root: Path) -> str:
        """By the folder of the decoded images."""
        return str(self.place(root))

    def place(self, root: Path) -> Path:
        """By the folder of the user."""
        return cache_place(root, self.title, f"{self.root.resolve()}:{self.size}")

    def listing(self, root: Path) -> Listing:
        """All folders are domains."""
        return listed_folders(self.root, _domains(self.root))

    def check(self, root: Path) -> Iterator[str]:
        """Decodes every image without storing it."""
        yield f"'{self.root}':"
        yield from self._reported(root, {})


def _domains(folder: Path) -> dict[str, str]:
    """The folders of the domains by their names, of which there must be at least two."""
    found: dict[str, str] = {}
    for name in folders_in(folder, "domain", LAYOUT):
        domain = domain_name(name)
        if not domain or domain in found:
            fault = "has no letter from a to z and no digit" if not domain else f"is too similar to '{found[domain]}'"
            raise UserError(f"the name of the domain folder '{folder / name}' {fault}; rename it")
        found[domain] = name
    if len(found) == 1:
        raise UserError(f"'{folder}' has one domain, {min(found)} (allowed: at least two, {LAYOUT})")
    return found


class PublishedDomains(Domains, PublishedImages):
    """A published data set: `folders` are the folders of its domains in `folder`, with their numbers of images."""

    folder: ClassVar[str]
    folders: ClassVar[Mapping[str, tuple[str, int]]]
    classes: ClassVar[int]
    url: ClassVar[str]

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """The published domains."""
        return tuple(cls.folders)

    @property
    def facts(self) -> Facts:
        """The published numbers of images."""
        held_out = self.folders[self.test_domain][1]
        total = self.counts()[2]
        return Facts(total - held_out, held_out, self.classes, self.input_shape)

    @property
    def stand_in(self) -> dict[str, Any]:
        """Digits of as many domains, of which the one with the same number is held out."""
        return DigitsDomains.stand_in_for(self.known().index(self.test_domain), len(self.folders))

    @classmethod
    def variants(cls) -> Sequence[Source]:
        """The first domain held out: all have the same decoded images."""
        return [cls.parse({"test_domain": cls.known()[0]})]

    @classmethod
    def counts(cls) -> tuple[str, str, int]:
        """See `PublishedImages`."""
        total = sum(images for _, images in cls.folders.values())
        return f"{total:,} in {len(cls.folders)} domains", str(cls.classes), total

    @classmethod
    def pieces(cls) -> tuple[Piece, ...]:
        """The folders of the domains."""
        return tuple(
            Piece(f"{cls.folder}/{name}", f"a folder of {cls.classes} class folders", cls.url)
            for name, _ in cls.folders.values()
        )

    def base(self, root: Path) -> Path:
        """Its folder below the data root."""
        return root / self.folder

    def place(self, root: Path) -> Path:
        """By the size of the images."""
        return self.places(root)[0]

    def listing(self, root: Path) -> Listing:
        """The published domains; other folders are ignored. Raises `UserError` if there are more or fewer classes."""
        found = listed_folders(self.base(root), {domain: name for domain, (name, _) in self.folders.items()})
        if found.classes != self.classes:
            raise UserError(
                f"'{self.base(root)}' has {found.classes} classes in each domain (published: {self.classes})"
            )
        return found

    def _checked(self, root: Path) -> Iterator[str]:
        yield from self._reported(root, {domain: images for domain, (_, images) in self.folders.items()})


class OfficeHome(PublishedDomains):
    """OfficeHome (Venkateswara et al. 2017): everyday objects in 65 classes and 4 domains, 15,588 images."""

    shown_as: ClassVar[str] = "OfficeHome"
    name: Literal["officehome"] = "officehome"

    folder: ClassVar[str] = "OfficeHomeDataset_10072016"
    folders: ClassVar[Mapping[str, tuple[str, int]]] = {
        "art": ("Art", 2427),
        "clipart": ("Clipart", 4365),
        "product": ("Product", 4439),
        "real_world": ("Real World", 4357),
    }
    classes: ClassVar[int] = 65
    homepage: ClassVar[str] = "https://www.hemanthdv.org/officeHomeDataset.html"
    url: ClassVar[str] = homepage
    licence: ClassVar[str] = "non-commercial research and education"


class PACS(PublishedDomains):
    """PACS (Li et al. 2017): 7 classes in 4 domains, 9,991 images."""

    shown_as: ClassVar[str] = "PACS"
    name: Literal["pacs"] = "pacs"

    folder: ClassVar[str] = "PACS"
    folders: ClassVar[Mapping[str, tuple[str, int]]] = {
        "art_painting": ("art_painting", 2048),
        "cartoon": ("cartoon", 2344),
        "photo": ("photo", 1670),
        "sketch": ("sketch", 3929),
    }
    classes: ClassVar[int] = 7
    homepage: ClassVar[str] = "https://dali-dl.github.io/project_iccv2017.html"
    url: ClassVar[str] = homepage
    licence: ClassVar[str] = "none stated; cite Li et al. 2017"


class VLCS(PublishedDomains):
    """VLCS (Fang et al. 2013), in the folders of DomainBed: 5 classes in 4 domains, 10,729 images."""

    shown_as: ClassVar[str] = "VLCS"
    name: Literal["vlcs"] = "vlcs"

    folder: ClassVar[str] = "VLCS"
    folders: ClassVar[Mapping[str, tuple[str, int]]] = {
        "caltech101": ("Caltech101", 1415),
        "labelme": ("LabelMe", 2656),
        "sun09": ("SUN09", 3282),
        "voc2007": ("VOC2007", 3376),
    }
    classes: ClassVar[int] = 5
    homepage: ClassVar[str] = "https://github.com/facebookresearch/DomainBed"
    url: ClassVar[str] = homepage
    licence: ClassVar[str] = "none stated; cite Fang et al. 2013"
