"""The base class of all data sources, and the base class of published data sets."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from fedflat.bench.data.cache import Cached, cached, is_cached, signature
from fedflat.bench.data.dataset import Dataset, Labels, Samples, Subset
from fedflat.bench.data.origin import MISSING, Origin
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen


@dataclass(frozen=True)
class Facts:
    """Size of a published data set: number of samples, classes, the shape of a sample, and the bytes of a number.

    The shape is (channels, height, width) of images, (channels, length) of signals.
    """

    train: int
    test: int
    classes: int
    shape: tuple[int, ...]
    number_bytes: int = 1

    def texts(self, variants: int = 1) -> tuple[str, str, str, str]:
        """Images, shape, classes and megabytes as texts; each of several `variants` has its own test images."""
        counts = f"{self.train:,} + {f'{variants} × ' if variants > 1 else ''}{self.test:,}"
        size = (self.train + variants * self.test) * math.prod(self.shape) * self.number_bytes / 1e6
        return (counts, "×".join(map(str, self.shape)), str(self.classes), f"{size:,.1f}")


class Form(NamedTuple):
    """What a model is built for: the shape of a sample, and the number of classes."""

    shape: tuple[int, ...]
    classes: int


class Listed(NamedTuple):
    """What is known of the training samples before they are decoded: their number, and the group of each, `[n]`."""

    samples: int
    groups: Labels | None


class Source(Frozen):
    """The `dataset` of a configuration.

    Sources whose images take minutes or hours to decode know their `form`, and what is `listed`, before: with these,
    mistakes in the rest of a configuration are found before images are decoded.
    """

    shown_as: ClassVar[str] = ""
    """The name in titles, before what else the label says; empty: labels stand for themselves."""
    trained_at_smoke_scale: ClassVar[bool] = False
    """Whether it replaces others at smoke scale."""

    name: str

    @property
    def label(self) -> str:
        """The name in paths and tables."""
        return self.name

    @abstractmethod
    def load(self, root: Path) -> Dataset:
        """The data set, read from files below the data root. Raises `UserError` if they are missing or wrong.

        Files are decoded once, into a cache below the same root. Nothing is downloaded.
        """

    def form(self, root: Path) -> Form | None:
        """The form of the samples; None if it is not known before they are loaded. No image is decoded."""
        return None

    def listed(self, root: Path) -> Listed | None:
        """The training samples in the lists or folders below the data root; None if they are not known before they
        are loaded. Raises `UserError` if lists or folders are missing or wrong. No image is read."""
        return None

    @classmethod
    @abstractmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list: images, shape, classes, megabytes, status below the data root, licence, source."""

    def require(self, root: Path) -> None:
        """Raises `UserError` with instructions if files below the data root are missing. No file is read."""

    label_maps: ClassVar[bool] = False
    """Whether the pixels have labels, for segmentation, and not the images."""

    class_names: ClassVar[tuple[str, ...]] = ()
    """The names of the classes in their order; empty: they are numbered."""

    @property
    def score(self) -> str:
        """By which models are judged: miou (mean IoU) for labels of pixels, else accuracy."""
        return "miou" if self.label_maps else "accuracy"

    @property
    def has_validation(self) -> bool:
        """Whether it has samples for validation only, which no client trains on."""
        return False

    own: ClassVar[bool] = False
    """Whether the files are user-defined, or have no checksums, so that they can change under the same name."""

    @classmethod
    def variants(cls) -> Sequence["Source"]:
        """The data sets of this name that `fedflat data prepare` decodes; the first one stands for all."""
        return [cls.parse({})]

    def decoded_as(self, root: Path) -> str:
        """What its decoded samples are: data sets of which it is the same share them."""
        return self.label

    @property
    def stand_in(self) -> dict[str, Any]:
        """The `dataset` that replaces this one at smoke scale."""
        return {"name": "digits"}

    def stand_in_groups(self, partition: Mapping[str, Any], most: int) -> dict[str, Any] | None:
        """The partition of `stand_in` that replaces a partition `by_group`; None: the stand-in has no groups.

        `most`: the largest number of clients, unless the groups need more.
        """
        return None

    def stored_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a stored sample, by that of a model's input; the former is larger if only its centre is seen."""
        return input_shape

    def prepare(self, root: Path, *, fetch: bool) -> Dataset:
        """Unpacks and decodes everything that runs need. Raises `UserError` if the cache is damaged."""
        data = self.load(root)
        verify_cache(self.label, [data.train, data.test])
        return data

    def missing_images(self, data: Dataset) -> int:
        """How many published images the loaded data set lacks; 0 for data sets that cannot be incomplete."""
        return 0

    def warning(self, data: Dataset) -> str | None:
        """A line for users who train the loaded data set; None if there is nothing to say."""
        return None

    @abstractmethod
    def check(self, root: Path) -> Iterator[str]:
        """Reads all files and reports on each. Raises `UserError` at the end if one is missing or wrong."""


class Published(Source):
    """A data set with published files: `facts` state its size, `origin` lists its files.

    Increase `version` whenever a change of the decoding changes the cached numbers. `needs`: other published data sets
    whose files this one uses.
    """

    facts: ClassVar[Facts]
    origin: ClassVar[Origin]
    needs: ClassVar[tuple[type["Published"], ...]] = ()
    version: ClassVar[int] = 1

    @classmethod
    def variants(cls) -> Sequence["Published"]:
        """All data sets of this name, of which a configuration chooses one."""
        return [cls.parse({})]

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        used = cls.origin.used(root)
        return (*cls.facts.texts(len(cls.variants())), cls.status(root), used.licence, used.homepage)

    @classmethod
    def status(cls, root: Path) -> str:
        """One of: needs NAME, missing, archive, files, ready, or how many variants are ready."""
        for needed in cls.needs:
            if needed.origin.used(root).status(root) == MISSING:
                return f"needs {needed.parse({}).name}"
        found = cls.origin.used(root).status(root)
        if found != "there":
            return found
        variants = cls.variants()
        ready = sum(variant.is_decoded(root) for variant in variants)
        if ready == len(variants):
            return "ready"
        return f"{ready} of {len(variants)} ready" if ready else "files"

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255, normalised by mean and deviation of the training images."""
        train, test = self.samples("train", root), self.samples("test", root)
        return Dataset(self.label, train.samples, test.samples, self.facts.classes, 255.0, train.mean, train.std)

    @abstractmethod
    def chunks(self, subset: Subset, root: Path) -> Iterator[Samples]:
        """The decoded images of a subset, in chunks, from verified files."""

    def require(self, root: Path) -> None:
        """Raises `UserError` with instructions if its files, or those of `needs`, are missing. No file is read."""
        for source in (*(needed.parse({}) for needed in self.needs), self):
            source.origin.used(root).require(source.name, root)

    @property
    def options(self) -> dict[str, object]:
        """Options on which the decoded images depend, in addition to the files."""
        return {}

    @property
    def stored_as(self) -> str:
        """The name in the cache."""
        return self.name

    @property
    def subsets(self) -> tuple[Subset, ...]:
        """The subsets that are decoded from the files of `origin`."""
        return ("train", "test")

    def samples(self, subset: Subset, root: Path) -> Cached:
        """A subset from the cache, to which it is written if it is missing."""
        self.origin.used(root).provide(self.name, root)
        return cached(*self._entry(subset, root), self.facts.classes, lambda: self.chunks(subset, root))

    def is_decoded(self, root: Path) -> bool:
        """Whether the cache is complete and up to date."""
        return self.origin.used(root).status(root) == "there" and all(
            is_cached(*self._entry(subset, root)) for subset in self.subsets
        )

    def _entry(self, subset: Subset, root: Path) -> tuple[Path, dict[str, object]]:
        """Folder and key of a subset in the cache."""
        files = [root / member.path for member in self.origin.used(root).members]
        key = {"source": self.stored_as, "version": self.version, "files": signature(files, root), **self.options}
        options = ":".join(f"{name}={value}" for name, value in self.options.items())
        return cache_place(root, f"{self.stored_as}-{subset}", options), key

    def check(self, root: Path) -> Iterator[str]:
        """Checks the checksums of all files, including those of `needs`."""
        wrong: list[str] = []
        for source in (*(needed.variants()[0] for needed in self.needs), self):
            try:
                yield from source.check_files(root)
            except UserError as error:
                wrong.append(str(error))
        if wrong:
            raise UserError("; ".join(wrong))

    def check_files(self, root: Path) -> Iterator[str]:
        """As `check`, without the files of `needs`."""
        yield f"{self.name}, expected in '{root}':"
        origin = self.origin.used(root)
        problems = origin.problems(root)
        for k, (file, problem) in enumerate(problems):
            if origin.archive is not None and k == 1:
                yield "or, unpacked from it:"
            expected = (
                f"md5 {file.md5}" if file.md5 and problem in (None, MISSING) else ""
            )  # otherwise the problem contains the md5
            facts = [file.path, problem or "ok", expected, file.url or file.name]
            yield "  " + "  ".join(fact for fact in facts if fact)
        wrong = [file for file, problem in problems if problem not in (None, MISSING)]
        if wrong:
            raise origin.complaint(self.name, root, wrong[0], "corrupt")
        if origin.status(root) == MISSING:
            raise UserError(f"data set {self.name} is missing: {origin.advice(self.name, root)}")

    def prepare(self, root: Path, *, fetch: bool) -> Dataset:
        """Downloads missing files if `fetch`; unpacks, decodes and verifies the subsets."""
        if fetch and self.origin.used(root) is self.origin and self.origin.status(root) != "there":
            self.origin.fetch(root)
        verify_cache(self.label, [self.samples(subset, root).samples for subset in self.subsets])
        return self.load(root)


def verify_cache(label: str, subsets: Iterable[Samples]) -> None:
    """Raises `UserError` if cached images differ from those that were decoded."""
    wholes = [subset if subset.whole is None else subset.whole for subset in subsets]
    if not all(whole.is_intact() for whole in {id(whole): whole for whole in wholes}.values()):
        raise UserError(f"the cache of {label} is damaged; delete the folder 'cache' below the data root")


def cache_place(root: Path, name: str, distinction: str = "") -> Path:
    """The folder of cached samples; `distinction` keeps data sets of the same name apart."""
    suffix = f"-{short_hash(distinction, digits=8)}" if distinction else ""
    return root / "cache" / f"{name}{suffix}"
