"""Published image files, which users put below the data root."""

import shlex
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from fedflat.bench.data.cache import stored_shape
from fedflat.bench.data.dataset import Dataset
from fedflat.bench.data.origin import MISSING, Origin
from fedflat.bench.data.sources.base import Facts, Form, Source, cache_place
from fedflat.bench.data.sources.image_files.decoding import Side
from fedflat.bench.input.errors import UserError


@dataclass(frozen=True)
class Piece:
    """A folder or file of a data set: its `path` below the data root, what it holds, and its `url`.

    `optional`: only some choices of the data set need it. `archive`: the path below the data root of the archive from
    which FedFlat unpacks it.
    """

    path: str
    holds: str
    url: str
    optional: bool = False
    archive: str | None = None

    def status(self, root: Path) -> str:
        """One of: there, archive (to be unpacked), missing. No file is read."""
        if (root / self.path).exists():
            return "there"
        return "archive" if self.archive is not None and (root / self.archive).is_file() else MISSING


class PublishedImages(Source):
    """The common base class. FedFlat knows no checksums of the images, so they count as user-defined.

    `origin`: those of the files that have a published checksum; they can be downloaded.
    """

    size: Side | tuple[int, int] = Field(default=224, description="height and width of the stored images, in pixels")

    own: ClassVar[bool] = True
    homepage: ClassVar[str]
    licence: ClassVar[str]
    origin: ClassVar[Origin | None] = None

    def missing_images(self, data: Dataset) -> int:
        """By the published numbers of training and of test images."""
        parts = ((self.facts.train, data.train), (self.facts.test, data.test))
        return sum(max(0, published - len(part)) for published, part in parts)

    def warning(self, data: Dataset) -> str | None:
        """Says how many of the published images are there if some are missing."""
        missing, published = self.missing_images(data), self.facts.train + self.facts.test
        if not missing:
            return None
        return f"data set {self.name}: {published - missing:,} of {published:,} published images are there"

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """The published numbers of images and classes, with the size of the stored images."""

    @classmethod
    @abstractmethod
    def pieces(cls) -> tuple[Piece, ...]:
        """All folders and files."""

    def needed(self) -> tuple[Piece, ...]:
        """Those without which it cannot be loaded."""
        return tuple(piece for piece in self.pieces() if not piece.optional)

    @classmethod
    @abstractmethod
    def counts(cls) -> tuple[str, str, int]:
        """Texts for a list: the number of images, that of classes; and the number of all images."""

    @abstractmethod
    def _checked(self, root: Path) -> Iterator[str]:
        """Reads all images below the data root, and reports on each part."""

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list, for images of the default size; the status names all sizes that are decoded."""
        default = cls.variants()[0]
        assert isinstance(default, PublishedImages)
        images, classes, total = cls.counts()
        height, width = (default.size, default.size) if isinstance(default.size, int) else default.size
        megabytes = f"{total * (3 + default.label_maps) * height * width / 1e6:,.1f}"
        return images, f"3×{height}×{width}", classes, megabytes, default.status(root), cls.licence, cls.homepage

    def form(self, root: Path) -> Form:
        """As published. No file is read."""
        return Form(self.facts.shape, self.facts.classes)

    def status(self, root: Path) -> str:
        """One of: missing, files (to be decoded), ready with the sizes of the stored images. No image is read."""
        if any(piece.status(root) == MISSING for piece in self.needed()):
            return MISSING
        sizes = ", ".join(f"{height}×{width}" for height, width in self._sizes(root))
        return f"ready: {sizes}" if sizes else "files"

    def _sizes(self, root: Path) -> list[tuple[int, int]]:
        """Height and width of the images of this data set that are decoded below the data root."""
        found: set[tuple[int, int]] = set()
        for place in root.glob(f"cache/{self.name}-*"):
            if (shape := stored_shape(place)) is not None and len(shape) == 4:
                height, width = shape[2:]
                size = height if isinstance(self.size, int) else (height, width)
                # Another data set's name may begin like this one's, and one of several parts may be missing.
                if all(one.is_dir() for one in self.model_copy(update={"size": size}).places(root)):
                    found.add((height, width))
        return sorted(found)

    def decoded_as(self, root: Path) -> str:
        """By the folders of the decoded images."""
        return " ".join(map(str, self.places(root)))

    def provide(self, root: Path) -> None:
        """As `require`; files that are still in an archive are unpacked from it, if it is intact."""
        self.require(root)
        if self.origin is not None:
            self.origin.provide(self.name, root)

    def prepare(self, root: Path, *, fetch: bool) -> Dataset:
        """Downloads what has a published checksum and is missing if `fetch`; decodes all images."""
        if fetch and self.origin is not None and self.origin.status(root) != "there":
            self.origin.fetch(root)
        return super().prepare(root, fetch=fetch)

    def places(self, root: Path) -> list[Path]:
        """The folders of the decoded images."""
        return [cache_place(root, self.name, f"size={self.size}")]

    def require(self, root: Path) -> None:
        """Raises `UserError` with instructions if a folder or file is missing. No file is read."""
        if missing := self._missing(root):
            raise UserError(f"{missing}; 'fedflat data check {self.name} --root {shlex.quote(str(root))}' lists all")

    def _missing(self, root: Path) -> str:
        """Which folder or file is missing, what it must be, and where it comes from; empty if all are there."""
        missing = [piece for piece in self.needed() if piece.status(root) == MISSING]
        if not missing:
            return ""
        first, more = missing[0], len(missing) - 1
        others = "" if not more else ", and so is 1 other" if more == 1 else f", and so are {more} others"
        what = f"it must be {first.holds}, from {first.url}"
        if first.archive is not None:
            what += f", which 'fedflat data prepare {self.name} --download' fetches"
        return f"data set {self.name}: '{root / first.path}' is missing{others}; {what}"

    def check(self, root: Path) -> Iterator[str]:
        """Decodes every image without storing it."""
        yield f"{self.name}, expected in '{root}':"
        for piece in self.pieces():
            yield "  " + "  ".join((piece.path, piece.status(root), piece.holds, piece.url))
        if missing := self._missing(root):
            raise UserError(missing)
        if self.origin is not None and (archive := self.origin.archive) is not None:
            problem = archive.problem(root)
            if problem not in (None, MISSING):
                raise self.origin.complaint(self.name, root, archive, str(problem))
        yield from self._checked(root)


def compared(count: int, published: int) -> str:
    """A number of images that are readable, compared with the published one: only equal numbers are ok."""
    if count < published:
        return f"{count:,} of {published:,} published images"
    return f"{count:,} images, ok" if count == published else f"{count:,} images (published: {published:,})"
