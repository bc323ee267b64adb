"""What is wrong in a run of image files is said before one of them is decoded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from fedflat.bench.data.sources.image_files import decoding, scenes
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.models import build_model, parse_model
from fedflat.bench.models.architectures.vit import ViTB32Choice
from tests.bench.data import image_copies, scene_copies
from tests.commands import fedflat
from tests.problems import train

CPU = torch.device("cpu")
COPIES = {
    "landmarks_user_160k": image_copies.write_landmarks,
    "cityscapes": scene_copies.write_cityscapes,
    "domain_folder": image_copies.WRITERS["domain_folder"],
}


def write_own(root: Path) -> None:
    """Two clients' images of one size in two classes."""
    lines = ["client,filename"]
    for subset in ("train", "test"):
        for name in ("ant", "bee"):
            for k in range(2):
                file = root / "mine" / subset / name / f"{k}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (10, 12), (k, k, k)).save(file)
                lines += [f"author {k},{name}/{k}.png"] if subset == "train" else []
    (root / "clients.csv").write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data root with a copy of the data set that the test names; decoding an image there fails the test."""
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    COPIES.get(request.param, write_own)(tmp_path / "data")

    def decoded(*_: object) -> None:
        raise AssertionError("an image is decoded")

    monkeypatch.setattr(decoding, "decode", decoded)
    monkeypatch.setattr(scenes, "decode_scene", decoded)
    return tmp_path / "data"


def config(dataset: dict[str, Any], model: Any, clients: int) -> RunConfig:
    return RunConfig.parse(
        {
            "dataset": dataset,
            "model": model,
            "partition": {"name": "by_group", "clients": clients},
            "participation": {"sampling": "full"},
            "method": "fedavg",
            "training": {"rounds": 1, "local_epochs": 1, "batch_size": 4, "lr": 0.1},
            "seed": 0,
        }
    )


def refused(run: RunConfig, root: Path, message: str) -> None:
    """Training ends with one line, and leaves neither a run nor decoded images."""
    with pytest.raises(UserError, match=message) as raised:
        train(run, root.parent / "runs" / "run", CPU)
    assert "\n" not in str(raised.value)
    assert not (root.parent / "runs").exists()
    assert not list(root.glob("cache/*/"))


def landmarks(size: int = 16) -> dict[str, Any]:
    return {"name": "landmarks_user_160k", "size": size}


def own_folder(root: Path) -> dict[str, Any]:
    return {"name": "image_folder", "root": str(root / "mine"), "clients": {"file": str(root / "clients.csv")}}


@pytest.mark.parametrize("root", ["landmarks_user_160k"], indirect=True)
def test_weights_that_are_of_another_model_or_missing(root: Path, tmp_path: Path):
    other = build_model(parse_model("mlp"), (1, 8, 8), 10, 0)
    torch.save(other.state_dict(), tmp_path / "other.pt")
    foreign = {"name": "mobilenet_v2_gn", "weights": str(tmp_path / "other.pt")}
    refused(config(landmarks(), foreign, 3), root, "other.pt' are of another model: missing tensors: features")
    missing = ViTB32Choice.parse({"weights": "imagenet"}).model_dump(mode="json")
    refused(config(landmarks(32), missing, 3), root, "vit_b_32-.*' is missing; run 'fedflat weights download vit_b_32'")
    assert not (root / "weights").exists()


@pytest.mark.parametrize("root", ["landmarks_user_160k"], indirect=True)
def test_sizes_and_parts_that_the_model_refuses(root: Path):
    refused(config(landmarks(40), "vit_b_32", 3), root, "multiples of 32, not 40×40")
    refused(config(landmarks(), {"name": "mobilenet_v2_gn", "frozen": ["body"]}, 3), root, "unknown part of the model")


@pytest.mark.parametrize("root", ["own"], indirect=True)
def test_the_size_of_own_images_is_that_of_the_first_one(root: Path):
    refused(config(own_folder(root), "vit_b_32", 2), root, "multiples of 32, not 12×10")


@pytest.mark.parametrize(
    ("root", "groups"),
    [("landmarks_user_160k", 3), ("cityscapes", 3), ("domain_folder", 2), ("own", 2)],
    indirect=["root"],
    ids=str,
)
def test_a_wrong_number_of_clients(root: Path, groups: int):
    entries = {
        "landmarks-user-160k": landmarks(),
        "cityscapes": scene_copies.entry("cityscapes"),
        "styles": image_copies.entry("domain_folder", root),
        "mine": own_folder(root),
    }
    [dataset] = [entry for folder, entry in entries.items() if (root / folder).exists()]
    model = "fcn_gn" if "cityscapes" in dataset["name"] else "cnn_gn"
    refused(config(dataset, model, 4), root, f"has {groups} groups .allowed: {groups} clients")


@pytest.mark.parametrize("root", ["landmarks_user_160k"], indirect=True)
def test_an_absent_test_image_of_landmarks(root: Path):
    """It is said before the training images, of which none is absent, are decoded."""
    lines = (root / "landmarks-user-160k/test.csv").read_text(encoding="utf-8").splitlines()
    name = lines[-1].split(",")[0]
    (root / "google-landmarks-v2/train" / name[0] / name[1] / name[2] / f"{name}.jpg").unlink()
    refused(config(landmarks(), "cnn_gn", 3), root, rf"{name}.jpg' is missing; listed in test.csv")
    for command in (("prepare",), ("check",)):
        done = fedflat("data", *command, "landmarks_user_160k", "--root", root)
        assert done.returncode == 2
        assert done.stderr.endswith(f"{name}.jpg' is missing; listed in test.csv\n")
    assert not list(root.glob("cache/*/"))


@pytest.mark.parametrize("root", ["own"], indirect=True)
def test_clients_and_sizes_of_own_images(root: Path):
    with (root / "clients.csv").open("a", encoding="utf-8") as file:
        file.write("\nsomebody,ant/9.png\n")
    refused(config(own_folder(root), "cnn_gn", 2), root, "lists ant/9.png, which is not a training image")
    write_own(root)
    Image.new("RGB", (9, 12)).save(root / "mine/test/ant/0.png")
    message = "the test images of .* have 12×9 pixels, but the training images have 12×10 pixels"
    refused(config(own_folder(root), "cnn_gn", 2), root, message)
