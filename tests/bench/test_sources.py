"""Every data set from a tiny copy in its true format: what is decoded, what a run makes of it, what is refused."""

import os
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from PIL import Image

from bench.config import RunConfig
from bench.data.inventory import check, prepare, status
from bench.data.origin import File
from bench.data.partitions import PAM, ByGroup, FromFile
from bench.data.root import data_root
from bench.data.sources import SOURCES, parse_source
from bench.data.sources.base import Published
from bench.data.sources.cifar import Cifar10
from bench.data.sources.idx import Emnist
from bench.data.sources.image_folder import ImageFolder
from bench.engine.streams import numpy_stream
from bench.errors import UserError
from bench.run import load_dataset, train
from tests.bench.published_copies import (
    COPIED,
    TEST,
    TRAIN,
    checksums,
    idx,
    images,
    labels,
    packed,
    python2_pickle,
    write_cifar10,
    write_copy,
)

OPTIONS = {"cifar10_c": {"corruption": "fog", "severity": 5}, "cifar100_c": {"corruption": "fog", "severity": 5}}


def entry(name: str, **options: object) -> dict[str, object]:
    return {"name": name, **OPTIONS.get(name, {}), **options}


def load(name: str, root: Path, **options: object):
    return parse_source(entry(name, **options)).load(root)


@pytest.mark.parametrize("name", COPIED)
def test_two_federated_rounds_and_an_evaluation(name, tmp_path, monkeypatch):
    write_copy(name, tmp_path / "data", monkeypatch)
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    config = {
        "dataset": entry(name),
        "model": "cnn_gn",
        "partition": {"name": "dirichlet", "alpha": 0.5, "clients": 4},
        "participation": {"active": 2},
        "method": "fedavg",
        "training": {"rounds": 2, "local_epochs": 1, "batch_size": 10, "lr": 0.01},
        "seed": 0,
    }
    run = train(RunConfig.parse(config), tmp_path / "run", torch.device("cpu"))
    rows = run.metrics()
    assert rows["round"].tolist() == [1, 2]
    assert np.isfinite(rows["test_loss"]).all()
    assert rows["test_accuracy"].between(0, 100).all()
    assert not run.diverged


def test_every_published_data_set_has_a_copy():
    assert {name for name in SOURCES if name not in {"digits", "image_folder"}} == set(COPIED)


def test_images_have_the_authors_names(tmp_path, monkeypatch):
    write_copy("cifar10", tmp_path, monkeypatch)
    assert load("cifar10", tmp_path).train.names[17] == "data_batch_2_000001.png"


def test_cifar100_has_coarse_labels_as_groups(tmp_path, monkeypatch):
    write_copy("cifar100", tmp_path, monkeypatch)
    data = load("cifar100", tmp_path)
    assert data.classes == 100
    assert np.array_equal(data.train.groups, data.train.labels // 5)


@pytest.mark.parametrize("name", ["cifar10_c", "cifar100_c"])
def test_a_corrupted_test_set_is_one_block_of_one_file(name, tmp_path, monkeypatch):
    write_copy(name, tmp_path, monkeypatch)
    folder = name.upper().replace("_C", "-C").replace("CIFAR", "CIFAR-")
    everything = np.load(tmp_path / folder / "snow.npy")
    data = load(name, tmp_path, corruption="snow", severity=3)
    assert np.array_equal(data.test.images, everything[2 * TEST : 3 * TEST].transpose(0, 3, 1, 2))
    assert data.name == f"{name}-snow-3"
    clean = load(name.removesuffix("_c"), tmp_path)
    assert np.array_equal(data.train.images, clean.train.images)
    assert (data.mean, data.std) == (clean.mean, clean.std)
    other = load(name, tmp_path, corruption="snow", severity=4)
    assert other.content_hash() != data.content_hash()


def test_emnist_stands_upright(tmp_path, monkeypatch):
    """Its files hold the images transposed."""
    write_copy("emnist", tmp_path, monkeypatch)
    data = load("emnist", tmp_path)
    assert np.array_equal(data.train.images[:, 0], images(2 * TRAIN, 28, 28, seed=2 * TRAIN).transpose(0, 2, 1))
    assert data.train.labels.tolist() == labels(2 * TRAIN, 62).tolist()
    assert data.classes == 62


def test_a_share_of_emnist_is_the_same_for_all_runs(tmp_path, monkeypatch):
    write_copy("emnist", tmp_path, monkeypatch)
    whole, part, again = load("emnist", tmp_path), load("emnist", tmp_path, share=0.2), load("emnist", tmp_path)
    assert (len(part.train), len(part.test)) == (2 * TRAIN // 5, TEST // 5)
    kept = {image.tobytes() for image in part.train.images}
    assert len(kept) == len(part.train)
    assert kept <= {image.tobytes() for image in whole.train.images}
    assert again.content_hash() == whole.content_hash()
    shutil.rmtree(tmp_path / "cache")
    assert load("emnist", tmp_path, share=0.2).content_hash() == part.content_hash()
    assert parse_source({"name": "emnist", "share": 0.2}).label == "emnist-0.2"


def test_svhn_calls_zero_zero(tmp_path, monkeypatch):
    write_copy("svhn", tmp_path, monkeypatch)
    data = load("svhn", tmp_path)
    assert data.train.labels.tolist() == labels(TRAIN, 10).tolist()
    assert np.array_equal(data.train.images, images(TRAIN, 32, 32, 3, seed=TRAIN).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cifar10_c"])
def test_an_archive_is_unpacked_when_it_is_needed(name, tmp_path, monkeypatch):
    source = write_copy(name, tmp_path, monkeypatch)
    before = load(name, tmp_path).content_hash()
    packed(source, tmp_path, monkeypatch)
    shutil.rmtree(tmp_path / "cache")
    assert status(source, tmp_path) == "archive"
    assert load(name, tmp_path).content_hash() == before
    assert status(source, tmp_path) == ("1 of 95 ready" if name == "cifar10_c" else "ready")
    assert not (tmp_path / Path(source.origin.members[0].path).parent / "readme.html").exists()


def test_prepare_makes_every_variant(tmp_path, monkeypatch):
    source = write_copy("cifar10_c", tmp_path, monkeypatch)
    assert status(source, tmp_path) == "files"
    lines = list(prepare("cifar10_c", tmp_path, fetch=False))
    assert len(lines) == 95
    assert lines[0].startswith("cifar10_c-brightness-1: 80 training and 20 test images in 10 classes, hash ")
    assert status(source, tmp_path) == "ready"


def test_check_reads_everything(tmp_path, monkeypatch):
    source = write_copy("cifar10", tmp_path, monkeypatch)
    lines = list(check("cifar10", tmp_path))
    assert sum("  ok  " in line for line in lines) == 6
    packed(source, tmp_path, monkeypatch)
    assert sum("  ok  " in line for line in check("cifar10", tmp_path)) == 1
    batch = tmp_path / "cifar-10-batches-py/data_batch_3"
    load("cifar10", tmp_path)
    batch.write_bytes(batch.read_bytes()[:-1] + b"?")
    with pytest.raises(UserError, match=r"'.*data_batch_3' is corrupt; delete it, then put https://www.cs.toronto.edu"):
        list(check("cifar10", tmp_path))


# What is wrong with files, each one line.


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
    """Unpacked EMNIST files have no published checksum: gzip's own tells."""
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
    with pytest.raises(UserError, match=rf"holds {2 * TRAIN} images, but '.*' {count} labels"):
        load("emnist", tmp_path, share=share)


def test_an_idx_file_of_another_kind(tmp_path, monkeypatch):
    write_copy("emnist", tmp_path, monkeypatch)
    load("emnist", tmp_path)
    pixels, classes = (tmp_path / Emnist.origin.members[k].path for k in (0, 1))
    shutil.copy(classes, pixels)
    with pytest.raises(UserError, match="begins with 2049, not 2051"):
        load("emnist", tmp_path)
    pixels.write_bytes(b"no gzip")
    with pytest.raises(UserError, match="is truncated or no gzipped IDX file"):
        load("emnist", tmp_path)


def test_a_pickle_that_would_run_a_program_is_refused(tmp_path, monkeypatch):
    class Harmful:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    source = write_copy("cifar10", tmp_path, monkeypatch)
    (tmp_path / "cifar-10-batches-py/data_batch_1").write_bytes(python2_pickle({b"data": Harmful()}))
    monkeypatch.setattr(source, "origin", checksums(source.origin, tmp_path))
    with pytest.raises(UserError, match=r"data_batch_1' is no CIFAR batch: it names \w+.mkdir"):
        load("cifar10", tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("name", "path", "content", "message"),
    [
        ("svhn", "train_32x32.mat", b"no matlab file at all" * 20, "is no MATLAB file of cropped digits"),
        ("cifar10_c", "CIFAR-10-C/fog.npy", b"no array", "is no array of numbers"),
        ("cifar10", "cifar-10-batches-py/test_batch", b"\x80\x02", "is no CIFAR batch"),
    ],
)
def test_a_file_of_another_format_whose_checksum_is_right(name, path, content, message, tmp_path, monkeypatch):
    source = write_copy(name, tmp_path, monkeypatch)
    (tmp_path / path).write_bytes(content)
    monkeypatch.setattr(source, "origin", checksums(source.origin, tmp_path))
    with pytest.raises(UserError, match=message):
        load(name, tmp_path)


def test_options_out_of_range():
    for fields, message in (
        ({"name": "cifar10_c", "corruption": "rain", "severity": 1}, "corruption = 'rain'"),
        ({"name": "cifar10_c", "corruption": "fog", "severity": 6}, "severity = 6"),
        ({"name": "emnist", "share": 0}, "share = 0"),
        ({"name": "cifar10", "normalisation": "mine"}, "normalisation = 'mine'"),
        ({"name": "cifar10", "root": "x"}, "unknown key of Cifar10 'root'"),
        ({"corruption": "fog"}, "dataset has no name"),
    ):
        with pytest.raises(UserError, match=message):
            parse_source(fields)


def test_the_data_root(monkeypatch):
    monkeypatch.delenv("FEDFLAT_DATA", raising=False)
    assert data_root() == Path("data")
    monkeypatch.setenv("FEDFLAT_DATA", "/scratch/images")
    assert data_root() == Path("/scratch/images")
    monkeypatch.setenv("FEDFLAT_DATA", "~nobody-of-this-name/x")
    with pytest.raises(UserError, match="FEDFLAT_DATA = '~nobody-of-this-name/x': there is no such home folder"):
        data_root()
    monkeypatch.setenv("FEDFLAT_DATA", __file__)
    with pytest.raises(UserError, match=r"FEDFLAT_DATA = '.*test_sources.py' is no folder"):
        data_root()


# A user's own images.


def folder_of_images(root: Path, sizes=((4, 4), (4, 4))) -> ImageFolder:
    for part in ("train", "test"):
        for name, size in zip(("ant", "bee"), sizes, strict=True):
            (root / part / name).mkdir(parents=True)
            Image.new("RGB", size, color=(10, 20, 30)).save(root / part / name / "0.png")
    return ImageFolder(root=root)


def test_image_folder_reads_classes_and_pixels(tmp_path):
    source = folder_of_images(tmp_path / "mine")
    (tmp_path / "mine/train/ant/.DS_Store").write_bytes(b"a file manager's")
    data = source.load(tmp_path)
    assert data.name == "mine"
    assert data.classes == 2
    assert data.image_shape == (3, 4, 4)
    assert data.train.labels.tolist() == [0, 1]
    assert data.train.images[0, :, 0, 0].tolist() == [10, 20, 30]
    assert data.train.names.tolist() == ["ant/0.png", "bee/0.png"]
    assert next(source.check(tmp_path)).endswith("train': 2 images in 2 classes, ok")


def test_image_folder_has_a_label_fit_for_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ImageFolder(root=".").label == tmp_path.name
    assert ImageFolder(root="my images/").label == "my-images"


def test_folders_of_one_name_have_caches_of_their_own(tmp_path):
    one, other = (folder_of_images(tmp_path / place / "mine") for place in ("a", "b"))
    Image.new("RGB", (4, 4)).save(tmp_path / "b/mine/train/ant/1.png")
    assert [len(source.load(tmp_path).train) for source in (one, other, one)] == [2, 3, 2]


def test_image_folder_says_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match=r"folder '.*nowhere/train' does not exist"):
        ImageFolder(root=tmp_path / "nowhere").load(tmp_path)
    with pytest.raises(UserError, match=r"is \(5, 5\), the images before it \(4, 4\)"):
        folder_of_images(tmp_path / "odd", sizes=((4, 4), (5, 5))).load(tmp_path)
    uneven = folder_of_images(tmp_path / "uneven")
    for name in ("ant", "bee"):
        Image.new("RGB", (6, 6)).save(tmp_path / "uneven" / "test" / name / "0.png")
    with pytest.raises(UserError, match=r"test images of .* are \(6, 6\), the training images \(4, 4\)"):
        uneven.load(tmp_path)
    source = folder_of_images(tmp_path / "broken")
    (tmp_path / "broken/train/ant/1.png").write_bytes((tmp_path / "broken/train/ant/0.png").read_bytes()[:50])
    for attempt in (source.load, lambda root: list(source.check(root))):
        with pytest.raises(UserError, match=r"1\.png' is not a readable image"):
            attempt(tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_images_of_more_than_eight_bits_are_refused(mode, tmp_path):
    source = folder_of_images(tmp_path / "mine")
    Image.new(mode, (4, 4), 60_000).save(tmp_path / "mine/train/ant/1.tiff")
    with pytest.raises(UserError, match=r"1.tiff' has more than 8 bits per channel \(mode [IF]"):
        source.load(tmp_path)


def test_an_image_folder_is_known_by_its_name_and_its_images(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    folder_of_images(tmp_path / "mine")
    config = {
        "dataset": {"name": "image_folder", "root": "mine"},
        "model": "cnn_gn",
        "partition": {"name": "iid", "clients": 2},
        "participation": {"sampling": "full"},
        "method": "fedavg",
        "training": {"rounds": 1, "local_epochs": 1, "batch_size": 1, "lr": 0.01},
        "seed": 0,
    }
    here, there = (
        RunConfig.parse({**config, "dataset": {"name": "image_folder", "root": root}})
        for root in ("mine", str(tmp_path / "mine"))
    )
    assert here.identity == there.identity
    before = train(here, tmp_path / "run", torch.device("cpu")).provenance
    assert train(there, tmp_path / "run", torch.device("cpu")).provenance == before, "it is finished"
    Image.new("RGB", (4, 4)).save(tmp_path / "mine/train/ant/1.png")
    load_dataset.cache_clear()  # as in a new process
    with pytest.raises(UserError, match="was trained on other images than are there now; pass --replace"):
        train(here, tmp_path / "run", torch.device("cpu"))
    after = train(here, tmp_path / "run", torch.device("cpu"), replace=True).provenance
    assert after["data_hash"] != before["data_hash"]


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("gone", ["its images", "the folder"])
def test_image_folder_refuses_a_class_without_images(part, gone, tmp_path):
    source = folder_of_images(tmp_path)
    (tmp_path / part / "bee" / "0.png").unlink()
    if gone == "the folder":
        (tmp_path / part / "bee").rmdir()
    message = "class 'bee' has no images in '.*test'|class 'bee' is in .*test but not in .*train"
    with pytest.raises(UserError, match=message.replace("test'", f"{part}'")):
        source.load(tmp_path)


def test_image_folder_in_the_home_folder(tmp_path, monkeypatch):
    folder_of_images(tmp_path / "mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    source = ImageFolder(root="~/mine")
    assert source == ImageFolder(root=tmp_path / "mine"), "one place, one identity"
    assert source.load(tmp_path).classes == 2
    with pytest.raises(UserError, match="there is no such home folder"):
        ImageFolder(root="~nobody-of-this-name/mine")


def test_clients_of_an_image_folder(tmp_path):
    folder_of_images(tmp_path / "mine")
    Image.new("RGB", (4, 4)).save(tmp_path / "mine/train/ant/1.png")
    table = tmp_path / "clients.csv"

    def source() -> ImageFolder:
        return ImageFolder.parse({"root": tmp_path / "mine", "clients": {"file": table}})

    table.write_text("client,filename\nzoe,ant/0.png\nadam,bee/0.png\nadam,ant/1.png\n")
    data = source().load(tmp_path)
    assert data.train.groups.tolist() == [1, 0, 0], "in the order of the images; clients are sorted"
    assert data.test.groups is None
    before = source()
    table.write_text("client,filename\nzoe,ant/0.png\nadam,bee/0.png\nzoe,ant/1.png\n")
    edited = source().load(tmp_path)
    assert edited.train.groups.tolist() == [1, 1, 0]
    assert edited.content_hash() not in {
        data.content_hash(),
        ImageFolder(root=tmp_path / "mine").load(tmp_path).content_hash(),
    }
    with pytest.raises(UserError, match=r"the clients file '.*clients.csv' has changed since"):
        before.load(tmp_path)
    for text, message in (
        ("client,filename\nzoe,ant/0.png\n", "does not say whose ant/1.png is"),
        ("client,filename\nzoe,ant/0.png\nzoe,ant/0.png\n", "names ant/0.png twice"),
        ("client,filename\nzoe,ant/9.png\n", "names ant/9.png, which is no training image"),
        ("client,filename\n,ant/0.png\nzoe,bee/0.png\n", "client"),
        ("who,filename\nzoe,ant/0.png\n", r"lacks the column client \(it has: who, filename\)"),
    ):
        table.write_text(text)
        with pytest.raises(UserError, match=message):
            source().load(tmp_path)
    table.unlink()
    with pytest.raises(UserError, match="cannot read the clients file"):
        source()


def test_a_changed_archive_of_the_same_name_is_noticed(tmp_path, monkeypatch):
    """The cache belongs to the files that are there now."""
    write_copy("cifar10", tmp_path, monkeypatch)
    before = load("cifar10", tmp_path)
    write_cifar10(tmp_path)  # same bytes, new times
    assert load("cifar10", tmp_path).content_hash() == before.content_hash()
    batch = tmp_path / "cifar-10-batches-py/data_batch_1"
    content = pickle.loads(batch.read_bytes(), encoding="bytes")
    content[b"data"] = content[b"data"] ^ np.uint8(1)
    batch.write_bytes(python2_pickle(content))
    monkeypatch.setattr(Cifar10, "origin", checksums(Cifar10.origin, tmp_path))
    after = load("cifar10", tmp_path)
    assert after.content_hash() != before.content_hash()
    assert after.test.content_hash() == before.test.content_hash()
    assert replace(after.train, stored_hash=None).content_hash() == after.train.content_hash()


# Fetching, from a server on this machine.


@pytest.fixture
def store(tmp_path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address at which its files are served."""
    folder = tmp_path / "store"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


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
def test_what_is_missing_is_fetched_if_asked_for(name, store, tmp_path, monkeypatch):
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
    assert status(source, root) == "ready"
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


def test_check_of_a_corrupted_test_set_names_all_files(tmp_path):
    lines: list[str] = []
    message = r"data set cifar10 is missing: put .*; data set cifar10_c is missing: put .*CIFAR-10-C"
    with pytest.raises(UserError, match=message):
        lines += check("cifar10_c", tmp_path)
    told = check("cifar10_c", tmp_path)
    lines = [next(told) for _ in range(32)]
    assert any("CIFAR-10-C.tar  missing" in line for line in lines)
    assert any("cifar-10-python.tar.gz  missing" in line for line in lines)


@pytest.mark.parametrize("trouble", ["corrupt", "gone"])
def test_a_failed_fetch_leaves_nothing(trouble, store, tmp_path, monkeypatch):
    (folder, address), root = store, tmp_path / "data"
    source = write_copy("svhn", folder, monkeypatch)
    serve(source, address, monkeypatch)
    file = folder / source.origin.members[0].path
    file.write_bytes(b"?") if trouble == "corrupt" else file.unlink()
    with pytest.raises(UserError, match="cannot fetch http://127"):
        list(prepare("svhn", root, fetch=True))
    assert not list(root.rglob("*.*"))


# With the partitions that are made for them.


def test_pachinko_allocation_of_cifar100(tmp_path, monkeypatch):
    write_copy("cifar100_pam", tmp_path, monkeypatch)
    train = load("cifar100_pam", tmp_path).train
    split = PAM(clients=16).split(train, numpy_stream(0, "partition"))
    assert sorted(np.concatenate(split)) == list(range(len(train)))
    assert {len(indices) for indices in split} == {len(train) // 16}


def test_a_client_for_each_owner_of_an_image_folder(tmp_path):
    source = folder_of_images(tmp_path / "mine")
    table = tmp_path / "clients.csv"
    table.write_text("client,filename\nzoe,ant/0.png\nadam,bee/0.png\n")
    train = ImageFolder.parse({"root": source.root, "clients": {"file": table}}).load(tmp_path).train
    split = ByGroup(clients=2).split(train, numpy_stream(0, "partition"))
    assert [indices.tolist() for indices in split] == [[1], [0]]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_split_by_file_names(name, tmp_path, monkeypatch):
    write_copy(name, tmp_path, monkeypatch)
    train = load(name, tmp_path).train
    file = tmp_path / "split.csv"
    rows = [f"{k % 3},{train.names[i]},{train.labels[i]}" for k, i in enumerate((5, 2, 70, 33))]
    file.write_text("\n".join(["client,filename,label", *rows]))
    split = FromFile(file=file).split(train, numpy_stream(0, "partition"))
    assert [indices.tolist() for indices in split] == [[5, 33], [2], [70]]
