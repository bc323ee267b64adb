"""Fetching data sets, from a server on this machine."""

import hashlib
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from fedflat.bench.data.inventory import check, prepare
from fedflat.bench.data.origin import File
from fedflat.bench.data.sources.base import Published
from fedflat.bench.data.sources.image_files.landmarks import LandmarksUser160k
from fedflat.bench.input.errors import UserError
from tests.bench.data.image_copies import write_landmarks
from tests.bench.data.published_copies import (
    packed,
    write_copy,
)


def serve(source: type[Published], address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the source's files fetched from this address."""

    def at_home(file: File) -> File:
        return replace(file, url=f"{address}/{file.path}")

    origin = source.origin
    if origin.archive is not None:
        monkeypatch.setattr(source, "origin", replace(origin, archive=at_home(origin.archive)))
    else:
        monkeypatch.setattr(source, "origin", replace(origin, members=tuple(map(at_home, origin.members))))


@pytest.mark.parametrize("name", ["cifar10", "emnist", "fashion_mnist", "svhn"])
def test_what_is_missing_is_fetched_if_requested(name, store, tmp_path, monkeypatch):
    (folder, address), root = store, tmp_path / "data"
    source = write_copy(name, folder, monkeypatch)
    if name == "cifar10":
        packed(source, folder, monkeypatch)
    serve(source, address, monkeypatch)
    with pytest.raises(UserError, match="is missing; put http://127"):
        list(prepare(name, root, fetch=False))
    assert not root.exists()
    [line] = prepare(name, root, fetch=True)
    assert line.startswith(f"{name}: ")
    assert source.status(root) == "ready"
    fetched = root / source.origin.downloads[0].path
    assert fetched.read_bytes() == (folder / source.origin.downloads[0].path).read_bytes()
    before = fetched.stat().st_mtime_ns
    list(prepare(name, root, fetch=True))
    assert fetched.stat().st_mtime_ns == before, "what is there is not fetched again"


def test_a_corrupt_archive_is_fetched_anew(store, tmp_path, monkeypatch):
    (folder, address), root = store, tmp_path / "data"
    source = write_copy("cifar10", folder, monkeypatch)
    packed(source, folder, monkeypatch)
    serve(source, address, monkeypatch)
    root.mkdir()
    (root / source.origin.archive.path).write_bytes(b"half of it")
    with pytest.raises(UserError, match="is corrupt"):
        list(prepare("cifar10", root, fetch=False))
    assert len(list(prepare("cifar10", root, fetch=True))) == 1


@pytest.mark.parametrize("trouble", ["corrupt", "gone"])
def test_a_failed_fetch_leaves_nothing(trouble, store, tmp_path, monkeypatch):
    (folder, address), root = store, tmp_path / "data"
    source = write_copy("svhn", folder, monkeypatch)
    serve(source, address, monkeypatch)
    file = folder / source.origin.members[0].path
    file.write_bytes(b"?") if trouble == "corrupt" else file.unlink()
    with pytest.raises(UserError, match="cannot download http://127"):
        list(prepare("svhn", root, fetch=True))
    assert not list(root.rglob("*.*"))


LISTS = "landmarks-user-160k"


@pytest.fixture
def landmarks(store, tmp_path, monkeypatch) -> Path:
    """A data root with the images of Landmarks, whose lists are served in their archive."""
    (folder, address), root = store, tmp_path / "data"
    write_landmarks(root)
    with zipfile.ZipFile(folder / f"{LISTS}.zip", "w") as archive:
        for file in sorted((root / LISTS).iterdir()):
            archive.write(file, f"{LISTS}/{file.name}")
            file.unlink()
    (root / LISTS).rmdir()
    md5 = hashlib.md5((folder / f"{LISTS}.zip").read_bytes(), usedforsecurity=False).hexdigest()
    archive = File(f"{LISTS}.zip", md5, f"{address}/{LISTS}.zip")
    monkeypatch.setattr(LandmarksUser160k, "origin", replace(LandmarksUser160k.origin, archive=archive))
    return root


def test_the_lists_of_landmarks_are_fetched_verified_and_unpacked(landmarks, store):
    name = "landmarks_user_160k"
    message = rf"federated_train\.csv' is missing, .*, which 'fedflat data prepare {name} --download' fetches"
    with pytest.raises(UserError, match=message):
        list(prepare(name, landmarks, fetch=False))
    said, line = prepare(name, landmarks, fetch=True)
    assert said == f"data set {name}: 24 of 183,698 published images are there"
    assert line.startswith(f"{name}: 18 training and 6 test samples in 2028 classes, hash ")
    assert (landmarks / f"{LISTS}.zip").read_bytes() == (store[0] / f"{LISTS}.zip").read_bytes()
    assert sorted(file.name for file in (landmarks / LISTS).iterdir()) == ["federated_train.csv", "test.csv"]


def test_an_archive_of_lists_is_unpacked_only_if_it_is_intact(landmarks, store):
    archive = landmarks / f"{LISTS}.zip"
    archive.write_bytes((store[0] / archive.name).read_bytes()[:-1])
    for attempt in (prepare("landmarks_user_160k", landmarks, fetch=False), check("landmarks_user_160k", landmarks)):
        with pytest.raises(UserError, match=r"landmarks-user-160k\.zip' is corrupt: its md5 is"):
            list(attempt)
    assert not (landmarks / LISTS).exists()
    shutil.copy(store[0] / archive.name, archive)
    lines = list(check("landmarks_user_160k", landmarks))
    assert f"  {LISTS}/test.csv  archive  a list with the columns image_id and class  " in "\n".join(lines)
    assert [line for line in lines if line.startswith("test: 6 of 19,526 published images")]


def test_the_checksum_of_the_lists_is_that_of_tensorflow_federated():
    archive = LandmarksUser160k.origin.archive
    assert archive.md5 == "53c36bd7d5fc12f927af2820b7e4a57c"
    assert archive.url.endswith("/federated-vision-datasets/landmarks-user-160k.zip")
