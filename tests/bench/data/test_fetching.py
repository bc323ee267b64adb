"""Fetching data sets, from a server on this machine."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.data.inventory import prepare
from bench.data.origin import File
from bench.data.sources.base import Published
from bench.input.errors import UserError
from tests.bench.data.published_copies import (
    packed,
    write_copy,
)
from tests.file_server import served


@pytest.fixture
def store(tmp_path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address at which its files are served."""
    folder = tmp_path / "store"
    folder.mkdir()

    with served(folder) as address:
        yield folder, address


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
