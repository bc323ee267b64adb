"""What every source of images has: a name, facts, a label for paths, and `load`."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from bench.data.cache import Cached, cached, is_cached, signature
from bench.data.dataset import Dataset, Samples
from bench.data.origin import MISSING, Origin
from bench.input.content import short_hash
from bench.input.errors import UserError
from bench.input.frozen import Frozen

Subset = Literal["train", "test"]


@dataclass(frozen=True)
class Facts:
    """What a published data set holds: number of images, classes, and an image's (channels, height, width)."""

    train: int
    test: int
    classes: int
    shape: tuple[int, int, int]

    @property
    def pixels(self) -> int:
        """Bytes of an image."""
        return math.prod(self.shape)


class Source(Frozen):
    """An entry of a configuration's `dataset`."""

    name: str

    @property
    def label(self) -> str:
        """Its name in paths and tables."""
        return self.name

    @abstractmethod
    def load(self, root: Path) -> Dataset:
        """The data set, from files below the data root; a `UserError` if they are missing or not what they should be.

        What has to be decoded is decoded once, into a cache below the same root. Nothing is fetched.
        """

    own: ClassVar[bool] = False
    """Whether the files are a user's own, which can change under the same name."""

    def prepare(self, root: Path, *, fetch: bool) -> Dataset:
        """Bring everything into the state in which runs only map it; a `UserError` if the cache has been damaged."""
        data = self.load(root)
        verify_cache(self.label, [data.train, data.test])
        return data

    @abstractmethod
    def check(self, root: Path) -> Iterator[str]:
        """Read all files in full, a line about each; a `UserError` at the end if any is missing or wrong."""


class Published(Source):
    """A data set whose files are published: `facts` and `origin` say what they hold and where they come from.

    `version` is counted up when the way of reading changes, and so the numbers that are cached. `needs` are other
    published data sets whose files it takes.
    """

    facts: ClassVar[Facts]
    origin: ClassVar[Origin]
    needs: ClassVar[tuple[type["Published"], ...]] = ()
    version: ClassVar[int] = 1

    @classmethod
    def variants(cls) -> list["Published"]:
        """All that the name alone can mean, of which a configuration picks one."""
        return [cls.parse({})]

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255, normalised by the training images' own mean and deviation."""
        train, test = self.samples("train", root), self.samples("test", root)
        return Dataset(self.label, train.samples, test.samples, self.facts.classes, 255.0, train.mean, train.std)

    @abstractmethod
    def chunks(self, part: Subset, root: Path) -> Iterator[Samples]:
        """Decoded images of a part, some at a time, from verified files."""

    @property
    def options(self) -> dict[str, object]:
        """What changes the decoded images, besides the files."""
        return {}

    @property
    def stored_as(self) -> str:
        """Its name in the cache."""
        return self.name

    @property
    def parts(self) -> tuple[Subset, ...]:
        """The parts that are decoded from its own files."""
        return ("train", "test")

    def samples(self, part: Subset, root: Path) -> Cached:
        """A part from the cache, where it is put if it is not there yet."""
        self.origin.provide(self.name, root)
        return cached(*self._entry(part, root), self.facts.classes, lambda: self.chunks(part, root))

    def is_decoded(self, root: Path) -> bool:
        """Whether the cache holds what the files hold now."""
        return self.origin.status(root) == "there" and all(is_cached(*self._entry(part, root)) for part in self.parts)

    def _entry(self, part: Subset, root: Path) -> tuple[Path, dict[str, object]]:
        """Place and key of a part in the cache."""
        files = [root / member.path for member in self.origin.members]
        key = {"source": self.stored_as, "version": self.version, "files": signature(files, root), **self.options}
        options = ":".join(f"{name}={value}" for name, value in self.options.items())
        return cache_place(root, f"{self.stored_as}-{part}", options), key

    def check(self, root: Path) -> Iterator[str]:
        """Every file's checksum, and that of the archive where it is there."""
        wrong: list[str] = []
        for source in (*(needed.variants()[0] for needed in self.needs), self):
            try:
                yield from source.check_files(root)
            except UserError as error:
                wrong.append(str(error))
        if wrong:
            raise UserError("; ".join(wrong))

    def check_files(self, root: Path) -> Iterator[str]:
        """As `check`, without what it needs of others."""
        yield f"{self.name}, expected in '{root}':"
        problems = self.origin.problems(root)
        for k, (file, problem) in enumerate(problems):
            if self.origin.archive is not None and k == 1:
                yield "or, unpacked from it:"
            expected = f"md5 {file.md5}" if file.md5 and problem in (None, MISSING) else ""  # else the problem has it
            facts = [file.path, problem or "ok", expected, file.url or ""]
            yield "  " + "  ".join(fact for fact in facts if fact)
        wrong = [file for file, problem in problems if problem not in (None, MISSING)]
        if wrong:
            raise self.origin.complaint(self.name, root, wrong[0], "corrupt")
        if self.origin.status(root) == MISSING:
            raise UserError(f"data set {self.name} is missing: {self.origin.advice(self.name, root)}")

    def prepare(self, root: Path, *, fetch: bool) -> Dataset:
        """Fetch what is missing, if asked to; unpack, decode and verify its own parts."""
        if fetch and self.origin.status(root) != "there":
            self.origin.fetch(root)
        verify_cache(self.label, [self.samples(part, root).samples for part in self.parts])
        return self.load(root)


def verify_cache(label: str, parts: Iterable[Samples]) -> None:
    """A `UserError` if images are not those that were decoded."""
    if not all(part.is_intact() for part in parts):
        raise UserError(f"the cache of {label} is damaged; delete the folder 'cache' below the data root")


def cache_place(root: Path, name: str, distinction: str = "") -> Path:
    """Where a cache entry lies; `distinction` tells entries of one name apart."""
    suffix = f"-{short_hash(distinction, digits=8)}" if distinction else ""
    return root / "cache" / f"{name}{suffix}"
