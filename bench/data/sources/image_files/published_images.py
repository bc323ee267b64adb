"""Published image files without checksums, which users put below the data root."""

import shlex
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from bench.data.sources.base import Source, cache_place
from bench.data.sources.image_files.decoding import Side
from bench.input.errors import UserError


@dataclass(frozen=True)
class Piece:
    """A folder or file of a data set: its `path` below the data root, what it holds, and its `url`.

    `optional`: only some choices of the data set need it.
    """

    path: str
    holds: str
    url: str
    optional: bool = False

    def status(self, root: Path) -> str:
        """One of: there, missing. No file is read."""
        return "there" if (root / self.path).exists() else "missing"


class PublishedImages(Source):
    """The common base class. The files are nowhere published with checksums, so they count as user-defined."""

    size: Side | tuple[int, int] = Field(default=224, description="height and width of the stored images, in pixels")

    own: ClassVar[bool] = True
    homepage: ClassVar[str]
    licence: ClassVar[str]

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
        """Texts for a list, for images of the default size."""
        default = cls.variants()[0]
        assert isinstance(default, PublishedImages)
        images, classes, total = cls.counts()
        height, width = (default.size, default.size) if isinstance(default.size, int) else default.size
        megabytes = f"{total * (3 + default.label_maps) * height * width / 1e6:,.1f}"
        return (
            images, f"3×{height}×{width}", classes, megabytes, default.status(root), cls.licence,
            cls.homepage,
        )  # fmt: skip

    def status(self, root: Path) -> str:
        """One of: missing, files (to be decoded), ready. Only names of files are read."""
        if any(piece.status(root) == "missing" for piece in self.needed()):
            return "missing"
        return "ready" if all(place.is_dir() for place in self.places(root)) else "files"

    def places(self, root: Path) -> list[Path]:
        """The folders of the decoded images."""
        return [cache_place(root, self.name, f"size={self.size}")]

    def require(self, root: Path) -> None:
        """Raises `UserError` with instructions if a folder or file is missing. No file is read."""
        if missing := self._missing(root):
            raise UserError(f"{missing}; 'fedflat data check {self.name} --root {shlex.quote(str(root))}' lists all")

    def _missing(self, root: Path) -> str:
        """Which folder or file is missing, what it must be, and where it comes from; empty if all are there."""
        missing = [piece for piece in self.needed() if piece.status(root) == "missing"]
        if not missing:
            return ""
        first, more = missing[0], len(missing) - 1
        others = "" if not more else ", and so is 1 other" if more == 1 else f", and so are {more} others"
        what = f"it must be {first.holds}, from {first.url}"
        return f"data set {self.name}: '{root / first.path}' is missing{others}; {what}"

    def check(self, root: Path) -> Iterator[str]:
        """Decodes every image without storing it."""
        yield f"{self.name}, expected in '{root}':"
        for piece in self.pieces():
            yield "  " + "  ".join((piece.path, piece.status(root), piece.holds, piece.url))
        if missing := self._missing(root):
            raise UserError(missing)
        yield from self._checked(root)


def compared(count: int, published: int) -> str:
    """A number of images that are readable, compared with the published one."""
    return f"{count:,} images, ok" if count == published else f"{count:,} images, ok (published: {published:,})"
