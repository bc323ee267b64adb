"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from the authors' Python batches."""

import importlib
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.data.cache import Cached, in_chunks
from fedflat.bench.data.dataset import Dataset, Samples, Subset
from fedflat.bench.data.origin import File, Origin
from fedflat.bench.data.sources.base import Facts, Published
from fedflat.bench.data.sources.cifar_sheets import PACKAGE, sheets
from fedflat.bench.data.sources.fixed_draw import divided
from fedflat.bench.input.errors import UserError

HOMEPAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
LICENCE = "none stated; cite Krizhevsky 2009"
SHAPE = (3, 32, 32)

JUDGING = 5000
"""Images for validation, with a draw of training images."""

MOST_IMAGES = 45_000
"""The largest draw of training images: the others are for validation."""

Normalisation = Literal["fl_simulator", "official_fedgf", "caldarola", "measured"]
Constants = tuple[tuple[float, float, float], tuple[float, float, float]]


class Cifar(Published):
    """The common base class: batches with rows of 3,072 bytes, and the normalisation constants of the released codes.

    The normalisation `measured` uses mean and deviation of the training images.
    """

    constants: ClassVar[dict[str, Constants]]
    batches: ClassVar[dict[Subset, tuple[str, ...]]]
    label_key: ClassVar[bytes]
    group_key: ClassVar[bytes | None] = None

    normalisation: Normalisation = Field(default="fl_simulator", description="mean and deviation, by released code")
    images: int | None = Field(
        default=None,
        ge=100,
        le=MOST_IMAGES,
        multiple_of=100,
        examples=[2000],
        description=f"training images, equally many of each class: a fixed draw; {JUDGING:,} of the others are for "
        "validation; null: all, and no validation",
    )

    @property
    def label(self) -> str:
        """For example cifar10, or cifar10-2000."""
        return self.name if self.images is None else f"{self.name}-{self.images}"

    @property
    def has_validation(self) -> bool:
        """Whether some images are for validation only."""
        return self.images is not None

    def decoded_as(self, root: Path) -> str:
        """All draws share the decoded images."""
        return self.name

    def load(self, root: Path) -> Dataset:
        """Pixels 0..255, normalised by the constants that `normalisation` names."""
        train, test = self.samples("train", root), self.samples("test", root)
        return self.dataset(train, test) if self.images is None else self._drawn(self.dataset(train, test), self.images)

    def _drawn(self, data: Dataset, images: int) -> Dataset:
        trained, judging, _ = divided(data.train.labels, images, "cifar images", JUDGING)
        return replace(data, train=data.train[trained], validation=data.train[judging])

    def dataset(self, train: Cached, test: Cached) -> Dataset:
        """Both subsets as a data set, with the same normalisation."""
        mean, std = self.constants.get(self.normalisation, (train.mean, train.std))
        return Dataset(self.label, train.samples, test.samples, self.facts.classes, 255.0, mean, std)

    def chunks(self, subset: Subset, root: Path) -> Iterator[Samples]:
        """The batches in the order of the authors' files."""
        members = {Path(member.path).name: member for member in self.origin.members}
        for name in self.batches[subset]:
            file = self.origin.verify(self.name, root, members[name])
            yield from in_chunks(self._samples(_unpickled(file), file))

    def _samples(self, batch: Any, file: Path) -> Samples:
        try:
            images = batch[b"data"].reshape(-1, *SHAPE)
            labels = np.asarray(batch[self.label_key], np.int64)
            groups = None if self.group_key is None else np.asarray(batch[self.group_key], np.int64)
            return Samples(images, labels, groups, np.array([name.decode() for name in batch[b"filenames"]]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"'{file}' is not a CIFAR batch: {type(error).__name__} {error}") from None


class Cifar10(Cifar):
    """CIFAR-10: 60,000 photographs of 32×32 pixels in 10 classes."""

    shown_as: ClassVar[str] = "CIFAR-10"
    name: Literal["cifar10"] = "cifar10"

    facts: ClassVar[Facts] = Facts(50_000, 10_000, 10, SHAPE)
    origin: ClassVar[Origin] = Origin(
        HOMEPAGE,
        LICENCE,
        (
            File("cifar-10-batches-py/data_batch_1", "c99cafc152244af753f735de768cd75f"),
            File("cifar-10-batches-py/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
            File("cifar-10-batches-py/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
            File("cifar-10-batches-py/data_batch_4", "634d18415352ddfa80567beed471001a"),
            File("cifar-10-batches-py/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
            File("cifar-10-batches-py/test_batch", "40351d587109b95175f43aff81a1287e"),
        ),
        File(
            "cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        ),
        PACKAGE,
    )
    constants: ClassVar[dict[str, Constants]] = {
        "fl_simulator": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
        "official_fedgf": ((0.491, 0.482, 0.446), (0.247, 0.243, 0.261)),
        "caldarola": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    }
    batches: ClassVar[dict[Subset, tuple[str, ...]]] = {
        "train": tuple(f"data_batch_{k}" for k in range(1, 6)),
        "test": ("test_batch",),
    }
    label_key: ClassVar[bytes] = b"labels"

    def chunks(self, subset: Subset, root: Path) -> Iterator[Samples]:
        """As for the common base class, or those of the repackaged files."""
        used = self.origin.used(root)
        return super().chunks(subset, root) if used is self.origin else sheets(self.name, used, subset, root)


class Cifar100(Cifar):
    """CIFAR-100: 60,000 photographs of 32×32 pixels in 100 classes; groups are the 20 coarse labels."""

    shown_as: ClassVar[str] = "CIFAR-100"
    name: Literal["cifar100"] = "cifar100"

    facts: ClassVar[Facts] = Facts(50_000, 10_000, 100, SHAPE)
    origin: ClassVar[Origin] = Origin(
        HOMEPAGE,
        LICENCE,
        (
            File("cifar-100-python/train", "16019d7e3df5f24257cddd939b257f8d"),
            File("cifar-100-python/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        ),
        File(
            "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        ),
    )
    constants: ClassVar[dict[str, Constants]] = dict.fromkeys(
        ("fl_simulator", "official_fedgf", "caldarola"), ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
    )
    batches: ClassVar[dict[Subset, tuple[str, ...]]] = {"train": ("train",), "test": ("test",)}
    label_key: ClassVar[bytes] = b"fine_labels"
    group_key: ClassVar[bytes | None] = b"coarse_labels"


class Cifar100Pam(Cifar100):
    """CIFAR-100 under the name that papers use with the partition pam: the same images and labels."""

    name: Literal["cifar100_pam"] = "cifar100_pam"  # type: ignore[assignment]

    @property
    def stored_as(self) -> str:
        """The name of CIFAR-100, whose images are used."""
        return "cifar100"


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"): ("numpy", "ndarray"),
    ("numpy", "dtype"): ("numpy", "dtype"),
}


class _ArraysOnly(pickle.Unpickler):
    """Reads arrays, numbers, texts, lists and mappings. Any other class or function in a pickle is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        place, attribute = _ALLOWED[module, name]
        return getattr(importlib.import_module(place), attribute)


def _unpickled(file: Path) -> Any:
    try:
        with file.open("rb") as stream:
            return _ArraysOnly(stream, encoding="bytes").load()
    except (pickle.UnpicklingError, EOFError, ValueError) as error:
        raise UserError(f"'{file}' is not a CIFAR batch: {error}") from None
