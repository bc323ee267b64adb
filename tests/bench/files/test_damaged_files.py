"""Published files that are missing, damaged or of another kind: one clear line each, and nothing left behind."""

import os
import shutil

import numpy as np
import pytest

from fedflat.bench.data.inventory import check
from fedflat.bench.data.sources import SOURCES
from fedflat.bench.data.sources.idx import Emnist
from fedflat.bench.input.errors import UserError
from tests.bench.data.published_copies import (
    COPIED,
    TEST,
    TRAIN,
    checksums,
    idx,
    labels,
    load,
    packed,
    python2_pickle,
    write_copy,
)


@pytest.mark.parametrize("name", COPIED)
def test_a_missing_file_is_named_with_what_to_do(name, tmp_path):
    source = SOURCES[name]
    first = next(iter((*source.needs, source)))
    with pytest.raises(UserError) as caught:
        load(name, tmp_path)
    message = str(caught.value)
    assert f"'{tmp_path / first.origin.members[0].path}' is missing" in message
    wanted = first.origin.downloads[0]
    assert f"put {wanted.url} as '{tmp_path / wanted.path}'" in message
    assert "fedflat data prepare" in message
    assert not list(tmp_path.iterdir())


def test_a_truncated_archive(tmp_path, monkeypatch):
    archive = packed(write_copy("cifar10", tmp_path, monkeypatch), tmp_path, monkeypatch)
    archive.write_bytes(archive.read_bytes()[:-1000])
    with pytest.raises(
        UserError, match=r"'.*cifar-10-python.tar.gz' is corrupt: its md5 is \w+ instead of \w+; delete"
    ):
        load("cifar10", tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == [archive.name]


def test_an_archive_that_ends_early_although_its_checksum_is_right(tmp_path, monkeypatch):
    source = write_copy("cifar10", tmp_path, monkeypatch)
    archive = packed(source, tmp_path, monkeypatch)
    archive.write_bytes(archive.read_bytes()[:-1000])
    monkeypatch.setattr(source, "origin", checksums(source.origin, tmp_path))
    with pytest.raises(UserError, match="cannot be unpacked"):
        load("cifar10", tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))


def test_an_archive_without_a_member(tmp_path, monkeypatch):
    source = write_copy("cifar10", tmp_path, monkeypatch)
    (tmp_path / "cifar-10-batches-py/data_batch_4").unlink()
    packed(source, tmp_path, monkeypatch)
    with pytest.raises(UserError, match="does not hold cifar-10-batches-py/data_batch_4"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("name", [name for name in COPIED if name != "emnist"])
def test_a_wrong_checksum(name, tmp_path, monkeypatch):
    source = write_copy(name, tmp_path, monkeypatch)
    file = tmp_path / (source.needs or (source,))[0].origin.members[0].path
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=rf"'{file}' is corrupt: its md5 is \w+ instead of \w+"):
        load(name, tmp_path)
    assert not [path for path in (tmp_path / "cache").glob("*") if "lock" not in path.name]


def test_labels_out_of_range(tmp_path, monkeypatch):
    source = write_copy("cifar10_c", tmp_path, monkeypatch)
    wrong = np.tile(labels(TEST, 10), 5).astype(np.uint8)
    wrong[7] = 10
    np.save(tmp_path / "CIFAR-10-C/labels.npy", wrong)
    monkeypatch.setattr(source, "origin", checksums(source.origin, tmp_path))
    with pytest.raises(UserError, match=r"cifar10_c-test-\w+ has the label 10 \(allowed: 0 to 9\)"):
        load("cifar10_c", tmp_path, severity=1)
    load("cifar10_c", tmp_path, severity=2)


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_truncated_idx_file(cut, tmp_path, monkeypatch):
    """Unpacked EMNIST files have no published checksum: gzip's own detects the damage."""
    write_copy("emnist", tmp_path, monkeypatch)
    load("emnist", tmp_path)
    file = tmp_path / Emnist.origin.members[0].path
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(UserError, match=rf"'{file}' is truncated"):
        load("emnist", tmp_path)


@pytest.mark.parametrize("count", [2 * TRAIN - 1, 2 * TRAIN + 1, 20_000])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_images_and_labels_of_different_number(count, share, tmp_path, monkeypatch):
    write_copy("emnist", tmp_path, monkeypatch)
    load("emnist", tmp_path)
    (tmp_path / Emnist.origin.members[1].path).write_bytes(idx(labels(count, 62)))
    with pytest.raises(UserError, match=rf"holds {2 * TRAIN} images, but '.*' holds {count} labels"):
        load("emnist", tmp_path, share=share)


def test_an_idx_file_of_another_kind(tmp_path, monkeypatch):
    write_copy("emnist", tmp_path, monkeypatch)
    load("emnist", tmp_path)
    pixels, classes = (tmp_path / Emnist.origin.members[k].path for k in (0, 1))
    shutil.copy(classes, pixels)
    with pytest.raises(UserError, match="begins with 2049, not 2051"):
        load("emnist", tmp_path)
    pixels.write_bytes(b"no gzip")
    with pytest.raises(UserError, match="is truncated or not a gzipped IDX file"):
        load("emnist", tmp_path)


def test_a_pickle_that_would_run_a_program_is_refused(tmp_path, monkeypatch):
    class Harmful:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    source = write_copy("cifar10", tmp_path, monkeypatch)
    (tmp_path / "cifar-10-batches-py/data_batch_1").write_bytes(python2_pickle({b"data": Harmful()}))
    monkeypatch.setattr(source, "origin", checksums(source.origin, tmp_path))
    with pytest.raises(UserError, match=r"data_batch_1' is not a CIFAR batch: it names \w+.mkdir"):
        load("cifar10", tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("name", "path", "content", "message"),
    [
        ("svhn", "train_32x32.mat", b"no matlab file at all" * 20, "is not a MATLAB file of cropped digits"),
        ("cifar10_c", "CIFAR-10-C/fog.npy", b"no array", "is not an array of numbers"),
        ("cifar10", "cifar-10-batches-py/test_batch", b"\x80\x02", "is not a CIFAR batch"),
    ],
)
def test_a_file_of_another_format_whose_checksum_is_right(name, path, content, message, tmp_path, monkeypatch):
    source = write_copy(name, tmp_path, monkeypatch)
    (tmp_path / path).write_bytes(content)
    monkeypatch.setattr(source, "origin", checksums(source.origin, tmp_path))
    with pytest.raises(UserError, match=message):
        load(name, tmp_path)


def test_check_of_a_corrupted_test_set_names_all_files(tmp_path):
    lines: list[str] = []
    message = r"data set cifar10 is missing: put .*; data set cifar10_c is missing: put .*CIFAR-10-C"
    with pytest.raises(UserError, match=message):
        lines += check("cifar10_c", tmp_path)
    report = check("cifar10_c", tmp_path)
    lines = [next(report) for _ in range(32)]
    assert any("CIFAR-10-C.tar  missing" in line for line in lines)
    assert any("cifar-10-python.tar.gz  missing" in line for line in lines)
