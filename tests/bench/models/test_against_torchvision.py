"""What is read of the published files is what torchvision's own readers read of them, and so are the checksums.

The files are tiny copies; their checksums stand in for torchvision's, too.
"""

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest

from fedflat.bench.data.dataset import Dataset, Samples
from fedflat.bench.data.sources import SOURCES, parse_source
from fedflat.bench.host.torchvision_compat import import_torchvision
from tests.bench.data.published_copies import TEST, TRAIN, write_copy


def copied(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Dataset, dict[str, str | None]]:
    """Our reading of a tiny copy, and its files' checksums by name."""
    source = write_copy(name, root, monkeypatch)
    return parse_source(name).load(root), {Path(file.path).name: file.md5 for file in source.origin.members}


def unpack(folder: Path, target: Path) -> None:
    """torchvision reads IDX files without their gzip."""
    for file in folder.glob("*.gz"):
        (target / file.stem).write_bytes(gzip.decompress(file.read_bytes()))


def same(part: Samples, images: np.ndarray, labels: object) -> None:
    """Pixels, labels and their order, of a copy that has some."""
    assert len(part) in (TRAIN, 2 * TRAIN, TEST)
    assert np.array_equal(part.images, images)
    assert part.labels.tolist() == np.asarray(labels).tolist()


@pytest.mark.parametrize(("name", "key"), [("cifar10", "label_names"), ("cifar100", "fine_label_names")])
def test_cifar(name, key, tmp_path, monkeypatch):
    """torchvision also needs the labels' names."""
    data, sums = copied(name, tmp_path, monkeypatch)
    theirs = getattr(import_torchvision().datasets, name.upper())
    (tmp_path / theirs.base_folder / "names").write_bytes(pickle.dumps({key: list(map(str, range(data.classes)))}))
    monkeypatch.setattr(theirs, "meta", {"filename": "names", "key": key, "md5": None})
    for files in ("train_list", "test_list"):
        monkeypatch.setattr(theirs, files, [[file, sums[file]] for file, _ in getattr(theirs, files)])
    for part, is_train in ((data.train, True), (data.test, False)):
        read = theirs(tmp_path, train=is_train)
        same(part, read.data.transpose(0, 3, 1, 2), read.targets)


def test_fashion_mnist(tmp_path, monkeypatch):
    data, _ = copied("fashion_mnist", tmp_path, monkeypatch)
    unpack(tmp_path / "FashionMNIST/raw", tmp_path / "FashionMNIST/raw")
    for part, is_train in ((data.train, True), (data.test, False)):
        read = import_torchvision().datasets.FashionMNIST(tmp_path, train=is_train)
        same(part, read.data[:, None].numpy(), read.targets)


def test_emnist_is_the_transposition_of_what_torchvision_reads(tmp_path, monkeypatch):
    """torchvision shows the images as they lie in the files, rows and columns exchanged."""
    data, _ = copied("emnist", tmp_path, monkeypatch)
    unpack(tmp_path / "EMNIST/raw/gzip", tmp_path / "EMNIST/raw")
    for part, is_train in ((data.train, True), (data.test, False)):
        read = import_torchvision().datasets.EMNIST(tmp_path, split="byclass", train=is_train)
        same(part, read.data.transpose(1, 2)[:, None].numpy(), read.targets)


def test_svhn(tmp_path, monkeypatch):
    data, sums = copied("svhn", tmp_path, monkeypatch)
    theirs = import_torchvision().datasets.SVHN
    lists = {part: [url, file, sums[file]] for part, (url, file, _) in theirs.split_list.items() if file in sums}
    monkeypatch.setattr(theirs, "split_list", lists)
    for part, name in ((data.train, "train"), (data.test, "test")):
        read = theirs(tmp_path, split=name)
        same(part, read.data, read.labels)


def test_checksums():
    """Two transcriptions of what the authors publish."""
    theirs = import_torchvision().datasets
    for name, other in (("cifar10", theirs.CIFAR10), ("cifar100", theirs.CIFAR100)):
        ours = {Path(file.path).name: file.md5 for file in SOURCES[name].origin.members}
        assert ours == dict(map(tuple, [*other.train_list, *other.test_list]))
        assert SOURCES[name].origin.archive.md5 == other.tgz_md5
        assert SOURCES[name].origin.archive.url == other.url
    assert SOURCES["emnist"].origin.archive.md5 == theirs.EMNIST.md5
    fashion = {Path(file.path).name: file.md5 for file in SOURCES["fashion_mnist"].origin.members}
    assert fashion == dict(theirs.FashionMNIST.resources)
    for file, part in zip(SOURCES["svhn"].origin.members, ("train", "test"), strict=True):
        assert [file.url, file.path, file.md5] == theirs.SVHN.split_list[part]
