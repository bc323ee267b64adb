"""Tiny copies of the published data sets, in their true formats on disk, with their own checksums."""

import gzip
import hashlib
import io
import pickle
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.io import savemat

from fedflat.bench.data.dataset import Dataset
from fedflat.bench.data.origin import Origin
from fedflat.bench.data.sources import SOURCES, parse_source
from fedflat.bench.data.sources.base import Published
from fedflat.bench.data.sources.cifar_c import CORRUPTIONS

TRAIN, TEST = 80, 20
COPIED = ("cifar10", "cifar100", "cifar100_pam", "cifar10_c", "cifar100_c", "emnist", "fashion_mnist", "svhn")


def images(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Random pixels."""
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def labels(n: int, classes: int) -> np.ndarray:
    """Every class in turn."""
    return np.arange(n) % classes


class Python2(pickle._Pickler):
    """Writes texts and bytes as Python 2 wrote its strings, which is how the authors' batches hold them."""

    def save_string(self, text: str | bytes) -> None:
        content = text.encode() if isinstance(text, str) else text
        short = len(content) < 256
        self.write(b"U" + bytes([len(content)]) if short else b"T" + struct.pack("<i", len(content)))
        self.write(content)
        self.memoize(text)

    dispatch: ClassVar = {**pickle._Pickler.dispatch, str: save_string, bytes: save_string}


def python2_pickle(content: object) -> bytes:
    """The content as Python 2 and the numpy of its time pickled it."""
    file = io.BytesIO()
    Python2(file, protocol=2).dump(content)
    return file.getvalue().replace(b"cnumpy._core.multiarray", b"cnumpy.core.multiarray")


def cifar_batch(file: Path, n: int, classes: int, seed: int) -> None:
    """A pickle as Python 2 wrote it: protocol 2, byte strings as keys."""
    y = labels(n, classes)
    batch: dict[bytes, object] = {
        b"batch_label": b"a batch",
        b"data": images(n, 3072, seed=seed),
        b"filenames": [f"{file.name}_{k:06d}.png".encode() for k in range(n)],
    }
    if classes == 10:
        batch[b"labels"] = [int(c) for c in y]
    else:
        batch |= {b"fine_labels": [int(c) for c in y], b"coarse_labels": [int(c) // 5 for c in y]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(python2_pickle(batch))


def write_cifar10(root: Path) -> None:
    for k in range(1, 6):
        cifar_batch(root / f"cifar-10-batches-py/data_batch_{k}", TRAIN // 5, 10, k)
    cifar_batch(root / "cifar-10-batches-py/test_batch", TEST, 10, 6)


def write_cifar100(root: Path) -> None:
    cifar_batch(root / "cifar-100-python/train", 2 * TRAIN, 100, 1)
    cifar_batch(root / "cifar-100-python/test", TEST, 100, 2)


def write_corrupted(root: Path, folder: str, classes: int) -> None:
    (root / folder).mkdir(parents=True)
    for k, corruption in enumerate(CORRUPTIONS):
        np.save(root / folder / f"{corruption}.npy", images(5 * TEST, 32, 32, 3, seed=k))
    np.save(root / folder / "labels.npy", np.tile(labels(TEST, classes), 5).astype(np.uint8))


def write_cifar10_c(root: Path) -> None:
    write_cifar10(root)
    write_corrupted(root, "CIFAR-10-C", 10)


def write_cifar100_c(root: Path) -> None:
    write_cifar100(root)
    write_corrupted(root, "CIFAR-100-C", 100)


def idx(array: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes: magic number, sizes, values."""
    header = np.array([0x800 + array.ndim, *array.shape], dtype=">i4")
    return gzip.compress(header.tobytes() + array.astype(np.uint8).tobytes(), mtime=0)


def write_fashion_mnist(root: Path) -> None:
    folder = root / "FashionMNIST/raw"
    folder.mkdir(parents=True)
    for name, n in (("train", TRAIN), ("t10k", TEST)):
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(idx(images(n, 28, 28, seed=n)))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(idx(labels(n, 10)))


def write_emnist(root: Path) -> None:
    """As NIST publishes it: gzipped files of all splits in one zip."""
    folder = root / "EMNIST/raw"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "gzip.zip", "w") as archive:
        archive.writestr("gzip/emnist-letters-mapping.txt", "1 65 97\n")
        for name, n in (("train", 2 * TRAIN), ("test", TEST)):
            archive.writestr(f"gzip/emnist-byclass-{name}-images-idx3-ubyte.gz", idx(images(n, 28, 28, seed=n)))
            archive.writestr(f"gzip/emnist-byclass-{name}-labels-idx1-ubyte.gz", idx(labels(n, 62)))


def write_svhn(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, n in (("train", TRAIN), ("test", TEST)):
        y = labels(n, 10)
        content = {"X": images(n, 32, 32, 3, seed=n).transpose(1, 2, 3, 0), "y": np.where(y == 0, 10, y)[:, None]}
        savemat(root / f"{name}_32x32.mat", content, do_compression=True)


WRITERS: dict[str, Callable[[Path], None]] = {
    "cifar10": write_cifar10,
    "cifar100": write_cifar100,
    "cifar100_pam": write_cifar100,
    "cifar10_c": write_cifar10_c,
    "cifar100_c": write_cifar100_c,
    "emnist": write_emnist,
    "fashion_mnist": write_fashion_mnist,
    "svhn": write_svhn,
}


def checksums(origin: Origin, root: Path) -> Origin:
    """The origin with the checksums of the files that are there, where it has any."""

    def md5(path: str, published: str | None) -> str | None:
        file = root / path
        return hashlib.md5(file.read_bytes()).hexdigest() if published and file.exists() else published

    members = tuple(replace(file, md5=md5(file.path, file.md5)) for file in origin.members)
    archive = origin.archive and replace(origin.archive, md5=md5(origin.archive.path, origin.archive.md5))
    return replace(origin, members=members, archive=archive)


def write_copy(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> type[Published]:
    """Write a tiny copy below `root`; its checksums stand in for the published ones. Its source."""
    WRITERS[name](root)
    source = SOURCES[name]
    assert issubclass(source, Published)
    for each in (source, *source.needs):
        monkeypatch.setattr(each, "origin", checksums(each.origin, root))
    return source


def packed(source: type[Published], root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive of a copy, in place of its unpacked files."""
    archive = source.origin.archive
    assert archive is not None
    folder = root / Path(source.origin.members[0].path).parts[0]
    with tarfile.open(root / archive.path, "w:gz" if archive.path.endswith("gz") else "w") as tar:
        tar.add(folder, arcname=folder.name)
        extra = tarfile.TarInfo(f"{folder.name}/readme.html")
        tar.addfile(extra, io.BytesIO())
    shutil.rmtree(folder)
    monkeypatch.setattr(source, "origin", checksums(source.origin, root))
    return root / archive.path


OPTIONS = {"cifar10_c": {"corruption": "fog", "severity": 5}, "cifar100_c": {"corruption": "fog", "severity": 5}}


def entry(name: str, **options: object) -> dict[str, object]:
    """The data set as a configuration names it."""
    return {"name": name, **OPTIONS.get(name, {}), **options}


def load(name: str, root: Path, **options: object) -> Dataset:
    """A copy as a configuration with these options loads it."""
    return parse_source(entry(name, **options)).load(root)
