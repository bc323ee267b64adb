"""A user's own images, and whose they are."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from fedflat.bench.data.partitions.by_group import ByGroup
from fedflat.bench.data.sources.image_files.image_folder import ImageFolder
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Cell
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream
from fedflat.bench.training.run_setup import load_dataset
from fedflat.bench.training.train import train_cell
from tests.problems import train


def folder_of_images(root: Path, sizes=((4, 4), (4, 4))) -> ImageFolder:
    for part in ("train", "test"):
        for name, size in zip(("ant", "bee"), sizes, strict=True):
            (root / part / name).mkdir(parents=True)
            Image.new("RGB", size, color=(10, 20, 30)).save(root / part / name / "0.png")
    return ImageFolder(root=root)


def one_round(root: str) -> RunConfig:
    """A run of one round on the images of a folder."""
    return RunConfig.parse(
        {
            "dataset": {"name": "image_folder", "root": root},
            "model": "cnn_gn",
            "partition": {"name": "iid", "clients": 2},
            "participation": {"sampling": "full"},
            "method": "fedavg",
            "training": {"rounds": 1, "local_epochs": 1, "batch_size": 1, "lr": 0.01},
            "seed": 0,
        }
    )


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
    with pytest.raises(UserError, match=r"bee/0.png' has 5×6 pixels, but the images before it have 4×4 pixels"):
        folder_of_images(tmp_path / "odd", sizes=((4, 4), (6, 5))).load(tmp_path)
    uneven = folder_of_images(tmp_path / "uneven")
    for name in ("ant", "bee"):
        Image.new("RGB", (6, 6)).save(tmp_path / "uneven" / "test" / name / "0.png")
    sizes = "test images of .* have 6×6 pixels, but the training images have 4×4 pixels"
    with pytest.raises(UserError, match=sizes):
        list(uneven.check(tmp_path))
    with pytest.raises(UserError, match=sizes):
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
    here, there = (one_round(root) for root in ("mine", str(tmp_path / "mine")))
    assert here.identity == there.identity
    before = train(here, tmp_path / "run", torch.device("cpu")).provenance
    assert train(there, tmp_path / "run", torch.device("cpu")).provenance == before, "it is finished"
    Image.new("RGB", (4, 4)).save(tmp_path / "mine/train/ant/1.png")
    load_dataset.cache_clear()  # as in a new process
    with pytest.raises(UserError, match=r"was trained before the data changed; --replace trains it again"):
        train(here, tmp_path / "run", torch.device("cpu"))
    after = train(here, tmp_path / "run", torch.device("cpu"), replace=True).provenance
    assert after["data_hash"] != before["data_hash"]


def test_a_run_that_is_trained_on_other_images_is_not_said_to_be_finished(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    folder_of_images(tmp_path / "mine")
    cell, said = Cell(CellAddress.of("mine/iid/full/fedavg"), (one_round(str(tmp_path / "mine")),)), list[str]()
    for replace in (False, True, True):
        train_cell("mine", cell, tmp_path / "cell", torch.device("cpu"), said.append, replace=replace)
        if not replace:
            Image.new("RGB", (4, 4)).save(tmp_path / "mine/train/ant/1.png")
            load_dataset.cache_clear()  # as in a new process
    assert ["not trained again" in line for line in said if "test accuracy after round" in line] == [False, False, True]


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

    table.write_text("client,filename\nzoe,ant/0.png\nadam,bee/0.png\nadam,ant/1.png\n", encoding="utf-8")
    data = source().load(tmp_path)
    assert data.train.groups.tolist() == [1, 0, 0], "in the order of the images; clients are sorted"
    assert data.test.groups is None
    before = source()
    table.write_text("client,filename\nzoe,ant/0.png\nadam,bee/0.png\nzoe,ant/1.png\n", encoding="utf-8")
    edited = source().load(tmp_path)
    assert edited.train.groups.tolist() == [1, 1, 0]
    assert edited.content_hash() not in {
        data.content_hash(),
        ImageFolder(root=tmp_path / "mine").load(tmp_path).content_hash(),
    }
    with pytest.raises(UserError, match=r"the clients file '.*clients.csv' has changed: its hash differs"):
        before.load(tmp_path)
    for text, message in (
        ("client,filename\nzoe,ant/0.png\n", "has no client for ant/1.png"),
        ("client,filename\nzoe,ant/0.png\nzoe,ant/0.png\n", "lists ant/0.png twice"),
        ("client,filename\nzoe,ant/9.png\n", "lists ant/9.png, which is not a training image"),
        ("client,filename\n,ant/0.png\nzoe,bee/0.png\n", "client"),
        ("who,filename\nzoe,ant/0.png\n", r"lacks the column client \(it has: who, filename\)"),
    ):
        table.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            source().load(tmp_path)
    table.unlink()
    with pytest.raises(UserError, match="cannot read the clients file"):
        source()


def test_a_client_for_each_owner_of_an_image_folder(tmp_path):
    source = folder_of_images(tmp_path / "mine")
    table = tmp_path / "clients.csv"
    table.write_text("client,filename\nzoe,ant/0.png\nadam,bee/0.png\n", encoding="utf-8")
    train = ImageFolder.parse({"root": source.root, "clients": {"file": table}}).load(tmp_path).train
    split = ByGroup(clients=2).split(train, numpy_stream(0, "partition"))
    assert [indices.tolist() for indices in split] == [[1], [0]]
