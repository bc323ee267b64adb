"""EMNIST (Cohen et al. 2017) and Fashion-MNIST (Xiao et al. 2017), from gzipped IDX files."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedflat.bench.data.dataset import Samples, Subset
from fedflat.bench.data.origin import File, Origin
from fedflat.bench.data.sources.base import Facts, Published
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream

SHAPE = (1, 28, 28)
CHUNK = 10_000
IMAGES, LABELS = 2051, 2049
"""Magic numbers of files with unsigned bytes in three dimensions, and in one."""


class Idx(Published):
    """The common base class: grey images in one file and their labels in another."""

    files: ClassVar[dict[Subset, tuple[int, int]]]
    """Positions of the files with images and labels among the members of `origin`, by subset."""

    def chunks(self, subset: Subset, root: Path) -> Iterator[Samples]:
        """Images and labels in the order of the files."""
        images, labels = (self.origin.verify(self.name, root, self.origin.members[k]) for k in self.files[subset])
        counts = _count(images, IMAGES), _count(labels, LABELS)
        if counts[0] != counts[1]:
            raise UserError(f"'{images}' holds {counts[0]} images, but '{labels}' holds {counts[1]} labels")
        for pixels, classes in zip(_items(images, IMAGES), _items(labels, LABELS), strict=True):
            yield Samples(self.upright(pixels)[:, None], classes.astype(np.int64))

    def upright(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Images `[n, rows, columns]` in upright orientation."""
        return pixels


class FashionMnist(Idx):
    """Fashion-MNIST: 70,000 grey 28×28 images of clothes in 10 classes."""

    shown_as: ClassVar[str] = "Fashion-MNIST"
    name: Literal["fashion_mnist"] = "fashion_mnist"

    facts: ClassVar[Facts] = Facts(60_000, 10_000, 10, SHAPE)
    origin: ClassVar[Origin] = Origin(
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
        tuple(
            File(f"FashionMNIST/raw/{name}", md5, f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}")
            for name, md5 in (
                ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
                ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
                ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
            )
        ),
    )
    files: ClassVar[dict[Subset, tuple[int, int]]] = {"train": (0, 1), "test": (2, 3)}


class Emnist(Idx):
    """EMNIST byclass: 814,255 grey 28×28 images of handwritten digits and letters in 62 classes.

    `share` selects a share of each subset, drawn uniformly, the same for all runs. Qu et al. 2022 state 20 %, but the
    number of images in their Table 3, 81,425, is 10 % of all.
    """

    shown_as: ClassVar[str] = "EMNIST"
    name: Literal["emnist"] = "emnist"
    share: float = Field(default=1.0, gt=0, le=1, description="share of the images that is used; 0.2 in Qu et al.")

    facts: ClassVar[Facts] = Facts(697_932, 116_323, 62, SHAPE)
    origin: ClassVar[Origin] = Origin(
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
        "public domain (NIST); cite Cohen et al. 2017",
        tuple(
            File(f"EMNIST/raw/gzip/emnist-byclass-{subset}-{kind}-ubyte.gz")
            for subset in ("train", "test")
            for kind in ("images-idx3", "labels-idx1")
        ),
        File(
            "EMNIST/raw/gzip.zip",
            "58c8d27c78d21e728a6bc7b3cc06412e",
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        ),
    )
    files: ClassVar[dict[Subset, tuple[int, int]]] = {"train": (0, 1), "test": (2, 3)}

    @property
    def label(self) -> str:
        """For example emnist, or emnist-0.2."""
        return self.name if self.share == 1 else f"{self.name}-{self.share:g}"

    @property
    def options(self) -> dict[str, object]:
        """The share, if it is not 1."""
        return {} if self.share == 1 else {"share": self.share}

    def chunks(self, subset: Subset, root: Path) -> Iterator[Samples]:
        """The selected images, in the order of the files."""
        if self.share == 1:
            yield from super().chunks(subset, root)
            return
        total = _count(self.origin.verify(self.name, root, self.origin.members[self.files[subset][1]]), LABELS)
        selected = np.zeros(total, bool)
        selected[numpy_stream(0, f"emnist {subset}").permutation(total)[: round(self.share * total)]] = True
        first = 0
        for chunk in super().chunks(subset, root):
            mask = selected[first : first + len(chunk)]
            first += len(chunk)
            yield chunk[mask]

    def upright(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The transposed images: EMNIST's files store columns first."""
        return pixels.transpose(0, 2, 1)


def _count(file: Path, magic: int) -> int:
    """The number of items according to the header of an IDX file."""
    with _opened(file) as stream:
        return _header(stream, file, magic)[0]


def _items(file: Path, magic: int) -> Iterator[NDArray[np.uint8]]:
    """The items of an IDX file, in chunks."""
    with _opened(file) as stream:
        count, shape = _header(stream, file, magic)
        size = int(np.prod(shape, dtype=np.int64))
        for first in range(0, count, CHUNK):
            n = min(CHUNK, count - first)
            data = stream.read(n * size)
            if len(data) < n * size:
                raise UserError(f"'{file}' is truncated: it has fewer than {count} items")
            yield np.frombuffer(data, np.uint8).reshape(n, *shape)
        if stream.read(1):  # reading to the end also verifies gzip's checksum
            raise UserError(f"'{file}' has more items than its header states ({count})")


def _header(stream: gzip.GzipFile, file: Path, magic: int) -> tuple[int, tuple[int, ...]]:
    """Number of items and shape of an item. Raises `UserError` for another kind of file."""
    found, count = (int(n) for n in np.frombuffer(stream.read(8), ">i4"))
    if found != magic:
        raise UserError(f"'{file}' is not an IDX file of the expected kind: it begins with {found}, not {magic}")
    shape = np.frombuffer(stream.read(8), ">i4") if magic == IMAGES else ()
    return count, tuple(int(n) for n in shape)


@contextmanager
def _opened(file: Path) -> Iterator[gzip.GzipFile]:
    """The unpacked content of a gzipped file. Raises `UserError` if it is damaged."""
    try:
        with gzip.open(file) as stream:
            yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise UserError(f"'{file}' is truncated or not a gzipped IDX file: {error}") from None
