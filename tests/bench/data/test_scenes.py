"""Street scenes with labels of pixels, from tiny copies in their true formats."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.analysis.measures.cost import images_of_steps
from fedflat.bench.data.inventory import check, listing
from fedflat.bench.data.label_maps import UNLABELLED
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.image_files import cityscapes, idda
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.progress import silent
from fedflat.bench.input.errors import UserError
from tests.bench.data.scene_copies import ENTRIES, SIZE, entry, write_cityscapes
from tests.problems import train

CPU = torch.device("cpu")
Roots = Callable[[str], Path]
SCENES = list(ENTRIES)


@pytest.mark.parametrize("name", SCENES)
def test_two_federated_rounds_an_evaluation_and_an_analysis(name, image_roots: Roots, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFLAT_DATA", str(image_roots(name)))
    config = {
        "dataset": entry(name),
        "model": "fcn_gn",
        "partition": {"name": "by_group", "clients": 3 if name == "cityscapes" else 2},
        "participation": {"sampling": "full"},
        "method": {"loss": "hard_pixels"},
        "training": {
            "rounds": 2, "local_epochs": 1, "batch_size": 2, "lr": 0.01,
            "augmentation": ["flip", {"name": "scaled_crop", "size": [16, 32]}],
        },
        "engine": {"backend": "loop"},
        "seed": 0,
    }  # fmt: skip
    run = train(RunConfig.parse(config), tmp_path / "run", CPU)
    rows = run.metrics()
    parts = ["", "_seen", "_unseen"] if name == "idda" else [""]
    assert [column for column in rows if column.startswith("test_miou")] == [f"test_miou{part}" for part in parts]
    assert np.isfinite(rows[[f"test_miou{part}" for part in parts]]).all(axis=None)
    run_analysis(parse_analysis("sharpness", {"images": 4}), run.path, tmp_path / "sharpness.csv", CPU, silent)
    assert np.isfinite(pd.read_csv(tmp_path / "sharpness.csv", comment="#")["sharpness"]).all()


@pytest.mark.parametrize("buffers", ["average", "local"])
def test_bisenet_is_trained_where_a_batch_of_one_image_would_be_left(buffers, tmp_path, monkeypatch):
    """Its context block has one value per image and channel: BatchNorm cannot normalise those of a single image."""
    write_cityscapes(tmp_path, each=9)
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path))
    config = {
        "dataset": {"name": "cityscapes", "size": [32, 64]},
        "model": {"name": "bisenet_v2", "buffers": buffers},
        "partition": {"name": "by_group", "clients": 2},
        "participation": {"sampling": "full"},
        "method": {"loss": "hard_pixels"},
        "training": {"rounds": 2, "local_epochs": 1, "batch_size": 8, "drop_last": True, "lr": 0.01},
        "evaluation": {"training_images": 2},
        "engine": {"backend": "loop"},
        "seed": 0,
    }
    run = train(RunConfig.parse(config), tmp_path / "run", CPU)
    assert [len(own) for own in run.split()] == [9, 9]
    rows = run.metrics()
    assert np.isfinite(rows[["train_loss", "test_miou"]]).all(axis=None)
    assert images_of_steps(run, [1, 2]) == {1: 16, 2: 16}
    config["training"] = {**config["training"], "drop_last": False}
    with pytest.raises(UserError, match=r"Expected more than 1 value per channel.* training\.drop_last"):
        train(RunConfig.parse(config), tmp_path / "all", CPU)


def test_classes_of_cityscapes():
    """The trained classes of the authors' table: road, sidewalk and building come first, bicycle last."""
    assert [cityscapes.IDS[number] for number in (7, 8, 11, 33)] == [0, 1, 2, 18]
    assert sorted(cityscapes.IDS[cityscapes.IDS >= 0])[:19] == list(range(19))
    assert cityscapes.IDS[[0, 9, 29, 255]].tolist() == [UNLABELLED] * 4
    assert (cityscapes.IDS[34:255] == -1).all()


def test_classes_of_idda():
    """CARLA's numbers: road and lane marking are one class, vehicles are cars."""
    assert idda.IDS[[6, 7, 8, 9, 1, 4]].tolist() == [0, 0, 1, 8, 2, 11]
    assert set(idda.IDS) == {-1, UNLABELLED, *range(16)}


@pytest.mark.parametrize("name", SCENES)
def test_images_and_labels_are_those_of_the_files(name, image_roots: Roots):
    root = image_roots(name)
    data = parse_source(entry(name)).load(root)
    base = root / name / "data"
    ids = {"cityscapes": cityscapes.IDS, "idda": idda.IDS}[name]
    for part in (data.train, data.test):
        for row, image_name in zip(part.rows, part.names, strict=True):
            if name == "cityscapes":
                file = base / "leftImg8bit" / image_name
                labels = base / "gtFine" / image_name.replace("leftImg8bit", "gtFine_labelIds")
            else:
                file = base / "IDDAsmall" / image_name
                labels = base / "IDDAsmall" / image_name.replace("RGB", "Semantic").replace("jpg", "png")
            width_first = SIZE[::-1]
            pixels = np.asarray(Image.open(file).resize(width_first, Image.Resampling.BILINEAR))
            assert np.array_equal(part.images[row], pixels.transpose(2, 0, 1))
            numbers = np.asarray(Image.open(labels).resize(width_first, Image.Resampling.NEAREST))
            assert np.array_equal(part.maps[row], ids[numbers])


@pytest.mark.parametrize("name", SCENES)
def test_values_are_between_minus_one_and_one(name, image_roots: Roots):
    """FedDrive's normalisation for BiSeNetV2; ImageNet's would give values up to 2.6."""
    data = parse_source(entry(name)).load(image_roots(name))
    assert (data.mean, data.std, data.scale) == ((0.5,) * 3, (0.5,) * 3, 255.0)


def test_clients_of_cityscapes(image_roots: Roots):
    root = image_roots("cityscapes")
    one, other, cities = (
        parse_source(entry("cityscapes", split=split)).load(root) for split in ("heterogeneous", "uniform", None)
    )
    assert (one.name, cities.name) == ("cityscapes-heterogeneous", "cityscapes")
    assert one.train.groups.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert other.train.names.tolist() == one.train.names.tolist()[::-1]
    assert [name.split("/")[1] for name in cities.train.names] == ["aachen"] * 4 + ["bremen"] * 4
    assert cities.train.groups.tolist() == [0] * 4 + [1] * 4
    assert all(name.startswith("val/lindau") for name in one.test.names)
    assert one.train.images.filename == other.train.images.filename, "decoded once"
    assert len({data.content_hash() for data in (one, other, cities)}) == 3


def test_parts_of_idda(image_roots: Roots):
    root = image_roots("idda")
    data, uniform = (parse_source(entry("idda", split=split)).load(root) for split in ("heterogeneous", "uniform"))
    domains = [name.split("/")[0] for name in data.test.names]
    assert {domains[k] for k in data.test_parts["seen"]} == {"T01_CN_A", "T02_HRN_B"}
    assert {domains[k] for k in data.test_parts["unseen"]} == {"T07_CN_A"}
    of_client = [{name.split("/")[0] for name in data.train.names[data.train.groups == k]} for k in range(2)]
    assert of_client == [{"T01_CN_A"}, {"T02_HRN_B"}]
    assert {name.split("/")[0] for name in uniform.train.names[uniform.train.groups == 0]} == of_client[0] | of_client[
        1
    ]


def changed(root: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "changed"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("cache"))
    return copy


def _first(root: Path, pattern: str) -> Path:
    return min(root.glob(f"cityscapes/data/{pattern}"))


def _palette(root: Path) -> None:
    file = _first(root, "gtFine/train/*/*.png")
    image = Image.fromarray(np.full((40, 72), 77, np.uint8), "P")
    image.putpalette([k % 256 for k in range(768)])
    image.save(file)


def _colours(root: Path) -> None:
    Image.fromarray(np.zeros((40, 72, 3), np.uint8)).save(_first(root, "gtFine/train/*/*.png"))


def _other_size(root: Path) -> None:
    Image.fromarray(np.zeros((40, 71), np.uint8)).save(_first(root, "gtFine/train/*/*.png"))


def _absent_labels(root: Path) -> None:
    _first(root, "gtFine/train/*/*.png").unlink()


def _damaged(folder: str) -> Callable[[Path], None]:
    def cut(root: Path) -> None:
        file = _first(root, f"{folder}/train/*/*.png")
        file.write_bytes(file.read_bytes()[:-40])

    return cut


def _list(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        file = _first(root, "heterogeneous/train/*.json")
        content = json.loads(file.read_text(encoding="utf-8"))
        change(content)
        file.write_text(json.dumps(content), encoding="utf-8")

    return apply


TEST_IMAGE = "val/lindau/lindau_000000_000019"
FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "unknown number": (_palette, r"gtFine_labelIds.png' has the number 77 \(allowed: 0 to 33, and 255\)"),
    "colours": (_colours, r"has the mode RGB \(allowed: a number of a class per pixel, mode L or P\)"),
    "another size": (_other_size, r"has 40×72 pixels, but its labels, '.*', have 40×71 pixels"),
    "no labels": (_absent_labels, r"gtFine_labelIds.png' is missing: the labels of '.*_leftImg8bit.png'"),
    "no image": (
        lambda root: _first(root, "leftImg8bit/val/*/*.png").unlink(),
        r"val/.*_leftImg8bit.png' is missing: the image of the labels '.*gtFine_labelIds.png'",
    ),
    "damaged image": (_damaged("leftImg8bit"), "_leftImg8bit.png' is not a readable image"),
    "damaged labels": (_damaged("gtFine"), "_gtFine_labelIds.png' is not a readable image"),
    "no images": (lambda root: shutil.rmtree(root / "cityscapes/data/leftImg8bit/val"), "val' has no images"),
    "no folder of lists": (
        lambda root: shutil.rmtree(root / "cityscapes/data/heterogeneous"),
        "heterogeneous' is missing; it must be a folder with train/.*, from https://github.com/Erosinho13/FedDrive",
    ),
    "no lists": (lambda root: shutil.rmtree(root / "cityscapes/data/heterogeneous/train"), "has no lists of training "),
    "no JSON": (lambda root: _first(root, "heterogeneous/train/*.json").write_text("{"), "is no list of FedDrive"),
    "no keys": (_list(lambda content: content.pop("users")), "is no list of FedDrive"),
    "absent image": (
        _list(lambda content: content["user_data"]["user0"]["x"].append("train/x.png")),
        "names the image 'train/x.png', which is missing",
    ),
    "twice": (
        _list(lambda content: content["user_data"]["user1"]["x"].append(content["user_data"]["user0"]["x"][0])),
        "twice, for 'user0' and 'user1'",
    ),
    "test image": (
        _list(lambda content: content["user_data"]["user1"]["x"].append(f"{TEST_IMAGE}_leftImg8bit.png")),
        "names the image 'val/lindau/.*', which is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_one_line_and_leave_nothing(fault, image_roots: Roots, tmp_path):
    root = changed(image_roots("cityscapes"), tmp_path)
    change, message = FAULTS[fault]
    change(root)
    with pytest.raises(UserError, match=message) as raised:
        parse_source(entry("cityscapes")).load(root)
    assert "\n" not in str(raised.value)
    assert not [path for path in root.glob("cache/*") if path.is_dir()]


@pytest.mark.parametrize("name", SCENES)
def test_what_is_missing_is_said(name, tmp_path, image_roots: Roots):
    with pytest.raises(UserError, match=rf"data set {name}: '.*' is missing"):
        parse_source(entry(name)).load(tmp_path)
    [line] = [line for line in listing(tmp_path).splitlines() if line.startswith(f"{name} ")]
    assert "missing" in line
    reported = list(check(name, image_roots(name)))
    assert any("training images of" in line for line in reported)


def test_all_lists_are_checked_and_absent_ones_are_said(tmp_path, image_roots: Roots):
    root = changed(image_roots("cityscapes"), tmp_path)
    reported = "\n".join(check("cityscapes", root))
    for label in ("cityscapes", "cityscapes-heterogeneous", "cityscapes-uniform"):
        assert f"\n{label}: 8 training images" in reported
    shutil.rmtree(root / "cityscapes/data/heterogeneous")
    assert "cityscapes-heterogeneous: cannot be used, because '" in "\n".join(check("cityscapes", root))
    next((root / "cityscapes/data/uniform").rglob("train/*.json")).write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="is no list of FedDrive"):
        list(check("cityscapes", root))


def test_both_settings_and_splits_of_idda_are_checked(tmp_path, image_roots: Roots):
    root = changed(image_roots("idda"), tmp_path)
    reported = "\n".join(check("idda", root))
    for setting in ("country", "rainy"):
        for split in ("heterogeneous", "uniform"):
            assert f"\nidda-{setting}-{split}: 6 training images of 2 clients" in reported
    shutil.rmtree(root / "idda/data/uniform/rainy")
    assert "idda-rainy-uniform: cannot be used, because '" in "\n".join(check("idda", root))
    next((root / "idda/data/uniform/country").rglob("train/*.json")).write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"uniform/country/train/.*is no list of FedDrive"):
        list(check("idda", root))


@pytest.mark.parametrize(("setting", "counts"), [("country", (4320, 1920)), ("rainy", (3312, 2928))])
def test_published_counts(setting, counts):
    facts = parse_source({"name": "idda", "setting": setting}).facts
    assert (facts.train, facts.test, facts.shape) == (*counts, (3, 512, 928))


@pytest.mark.parametrize(("split", "train"), [("heterogeneous", 2904), ("uniform", 2975), (None, 2975)])
def test_the_heterogeneous_lists_of_cityscapes_leave_out_images(split, train):
    facts = parse_source({"name": "cityscapes", "split": split, "size": [1024, 2048]}).facts
    assert (facts.train, facts.test, facts.shape) == (train, 500, (3, 1024, 2048))
