"""Every published data set from a tiny copy in its true format: what is decoded, and what a run makes of it."""

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedflat.bench.data.inventory import check, prepare
from fedflat.bench.data.partitions.from_file import FromFile
from fedflat.bench.data.partitions.pam import PAM
from fedflat.bench.data.root import data_root
from fedflat.bench.data.sources import SOURCES, parse_source
from fedflat.bench.data.sources.base import Published
from fedflat.bench.data.sources.cifar import Cifar10
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream
from tests.bench.data.published_copies import (
    COPIED,
    TEST,
    TRAIN,
    checksums,
    entry,
    images,
    labels,
    load,
    packed,
    python2_pickle,
    write_cifar10,
    write_copy,
)
from tests.problems import train


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
    assert {name for name, source in SOURCES.items() if issubclass(source, Published)} == set(COPIED)


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
    remaining = {image.tobytes() for image in part.train.images}
    assert len(remaining) == len(part.train)
    assert remaining <= {image.tobytes() for image in whole.train.images}
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
    assert source.status(tmp_path) == "archive"
    assert load(name, tmp_path).content_hash() == before
    assert source.status(tmp_path) == ("1 of 95 ready" if name == "cifar10_c" else "ready")
    assert not (tmp_path / Path(source.origin.members[0].path).parent / "readme.html").exists()


def test_prepare_makes_every_variant(tmp_path, monkeypatch):
    source = write_copy("cifar10_c", tmp_path, monkeypatch)
    assert source.status(tmp_path) == "files"
    lines = list(prepare("cifar10_c", tmp_path, fetch=False))
    assert len(lines) == 95
    assert lines[0].startswith("cifar10_c-brightness-1: 80 training and 20 test samples in 10 classes, hash ")
    assert source.status(tmp_path) == "ready"


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


def test_options_out_of_range():
    for fields, message in (
        ({"name": "cifar10_c", "corruption": "rain", "severity": 1}, "corruption = 'rain'"),
        ({"name": "cifar10_c", "corruption": "fog", "severity": 6}, "severity = 6"),
        ({"name": "emnist", "share": 0}, "share = 0"),
        ({"name": "cifar10", "normalisation": "mine"}, "normalisation = 'mine'"),
        ({"name": "cifar10", "root": "x"}, "unknown key of cifar10 'root'"),
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
    with pytest.raises(UserError, match=r"FEDFLAT_DATA = '.*test_sources.py' is not a folder"):
        data_root()


def test_pachinko_allocation_of_cifar100(tmp_path, monkeypatch):
    write_copy("cifar100_pam", tmp_path, monkeypatch)
    train = load("cifar100_pam", tmp_path).train
    split = PAM(clients=16).split(train, numpy_stream(0, "partition"))
    assert sorted(np.concatenate(split)) == list(range(len(train)))
    assert {len(indices) for indices in split} == {len(train) // 16}


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_split_by_file_names(name, tmp_path, monkeypatch):
    write_copy(name, tmp_path, monkeypatch)
    train = load(name, tmp_path).train
    file = tmp_path / "split.csv"
    rows = [f"{k % 3},{train.names[i]},{train.labels[i]}" for k, i in enumerate((5, 2, 70, 33))]
    file.write_text("\n".join(["client,filename,label", *rows]), encoding="utf-8")
    split = FromFile(file=file).split(train, numpy_stream(0, "partition"))
    assert [indices.tolist() for indices in split] == [[5, 33], [2], [70]]
