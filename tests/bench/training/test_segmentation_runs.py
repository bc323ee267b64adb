"""Runs of segmentation on scenes of digits: their scores, back ends, validation, analyses, and what they refuse."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import jaccard_score

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.data.label_maps import UNLABELLED
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.progress import silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import SCENE_PIXELS, RunSetup, evaluation_batch, images_per_batch
from fedflat.bench.tuning.score import score
from tests.problems import train

CPU = torch.device("cpu")
BASE: dict[str, Any] = {
    "dataset": "digit_scenes",
    "model": "fcn_gn",
    "partition": {"name": "by_group", "clients": 8, "clients_per_group": 2},
    "participation": {"active": 2},
    "method": {"loss": "hard_pixels"},
    "training": {
        "rounds": 2, "local_steps": 2, "batch_size": 8, "lr": 0.1, "local_momentum": 0.9,
        "augmentation": ["flip", "scaled_crop"],
    },
    "evaluation": {"training_images": 50},
    "engine": {"backend": "loop"},
    "seed": 0,
}  # fmt: skip


def config(**changes: object) -> RunConfig:
    return RunConfig.parse({**BASE, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return train(config(), tmp_path_factory.mktemp("scenes") / "seed-0", CPU)


def test_scores_are_those_of_scikit_learn(run: RunDirectory) -> None:
    setup, last = RunSetup.build(config(), CPU), run.metrics().iloc[-1]
    data = setup.dataset
    x, _ = setup.test.batch(torch.arange(len(data.test)))
    predicted = setup.objective.logits(run.final(CPU).w, x, batch_size=100).argmax(1).numpy()
    places = {"": np.arange(len(data.test)), **{f"_{name}": at for name, at in data.test_parts.items()}}
    for name, at in places.items():
        labelled = data.test.maps[at] != UNLABELLED
        true, found = data.test.maps[at][labelled], predicted[at][labelled]
        miou = jaccard_score(true, found, labels=np.unique(true), average="macro", zero_division=0)
        assert last[f"test_miou{name}"] == pytest.approx(100 * miou)
        if not name:
            assert last["test_accuracy"] == pytest.approx(100 * (true == found).mean())
    assert last["test_loss"] == pytest.approx(
        setup.objective.loss(run.final(CPU).w, [setup.test.batch(torch.arange(len(data.test)))]), rel=1e-5
    )
    assert 0 < last["train_miou"] < 100
    assert "test mIoU" in (run.path / "run.log").read_text(encoding="utf-8")


def test_a_run_that_diverged_before_its_first_evaluation_has_the_columns_of_others(
    tmp_path: Path, run: RunDirectory
) -> None:
    metrics = train(config(training=BASE["training"] | {"lr": 1e38}), tmp_path / "wild", CPU).metrics()
    assert metrics["diverged"].tolist() == [1]
    assert list(metrics) == list(run.metrics())
    assert metrics.filter(regex="^(train|test)_").isna().all(axis=None)


def test_a_run_stops_at_its_miou(run: RunDirectory, tmp_path: Path) -> None:
    first = run.metrics().iloc[0]
    miou, accuracy = first["test_miou"], first["test_accuracy"]
    assert miou < accuracy
    for until, rounds in ((miou, 1), ((miou + accuracy) / 2, 2)):
        part = train(config(evaluation={"training_images": 50, "until": until}), tmp_path / f"{until}", CPU)
        assert len(part.metrics()) == rounds


def test_targets_of_convergence_are_mious(run: RunDirectory, tmp_path: Path) -> None:
    first = run.metrics().iloc[0]
    targets = [first["test_miou"], first["test_accuracy"]]
    analysis = parse_analysis("convergence", {"targets": targets, "reference": "hard_pixels", "window": 2})
    run_analysis(analysis, run.path, tmp_path / "out.csv", CPU, silent, [run.path])
    table = pd.read_csv(tmp_path / "out.csv")
    rounds = table[(table["metric"] == "rounds_to_target") & (table["smoothed"] == 0)].set_index("target")
    assert rounds.loc[targets, "value"].tolist() == [1, 2]
    assert rounds.loc[targets, "reached"].tolist() == [1, 0]
    assert rounds[rounds["target_of"] == "hard_pixels"].index.tolist() == [run.metrics()["test_miou"].iloc[-1]]
    assert "first round with test mIoU >= " in rounds["definition"].iloc[0]
    smoothed = table.loc[table["smoothed"] == 1, "definition"]
    assert smoothed.str.contains("mean of the last 2 test mIoUs >= ").all()


def test_batches_for_evaluation_have_few_pixels() -> None:
    data = RunSetup.build(config(), CPU).test
    assert evaluation_batch(data) == 250
    large = torch.zeros(2, 1024, 2048, dtype=torch.uint8)
    street = type(data)(data.images, data.labels, data.shift, data.factor, maps=large)
    assert evaluation_batch(street) == 1
    assert SCENE_PIXELS // (512 * 1024) == 2


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64), (40,), (1, 10_000)])
def test_batches_of_small_images_and_of_signals_have_their_full_size(shape: tuple[int, ...]) -> None:
    """Their sizes decide the bits of stored results."""
    assert (images_per_batch("cpu", shape), images_per_batch("cuda", shape)) == (250, 2000)


def test_batches_of_large_images_fit_into_memory() -> None:
    shape = (3, 224, 224)
    assert (images_per_batch("cpu", shape), images_per_batch("cuda", shape)) == (20, 167)
    data = RunSetup.build(config(), CPU).test
    photographs = torch.zeros(2, *shape, dtype=torch.uint8)
    assert evaluation_batch(type(data)(photographs, data.labels, data.shift, data.factor)) == 20


def test_a_cohort_computes_the_same_round(run: RunDirectory) -> None:
    setup = RunSetup.build(config(), CPU)
    start = setup.federation.start(setup.objective.initial())
    one, _ = setup.federation.run_round(start, [0, 5])
    other, _ = setup.federation.run_round(start, [0, 5], backend=Cohort())
    torch.testing.assert_close(one.w, other.w, rtol=1e-3, atol=1e-5)
    assert not torch.equal(one.w, start.w)


def test_held_out_images_are_scored_by_their_miou(tmp_path) -> None:
    held = config(evaluation={"training_images": 50, "validation": 0.2})
    metrics = train(held, tmp_path / "seed-0", CPU).metrics()
    assert not [name for name in metrics if name.startswith("test")]
    rows = metrics.to_dict("records")
    assert score("last", rows, [2]) == rows[1]["validation_miou"]
    assert not np.isnan(rows[1]["validation_miou"])


@pytest.mark.parametrize("analysis", ["hessian", "sharpness", "interpolation"])
def test_analyses_of_the_loss(analysis: str, run: RunDirectory, tmp_path: Path) -> None:
    options = {
        "hessian": {"images": 8, "k": 1, "max_products": 5},
        "sharpness": {"images": 8},
        "interpolation": {"images": 8},
    }
    known = parse_analysis(analysis, {}).model_dump()
    chosen = {name: value for name, value in options[analysis].items() if name in known}
    run_analysis(parse_analysis(analysis, chosen), run.path, tmp_path / "out.csv", CPU, silent)
    assert len(pd.read_csv(tmp_path / "out.csv", comment="#"))


@pytest.mark.parametrize("analysis", ["clients", "corruptions"])
def test_analyses_of_classes_are_refused(analysis: str, run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"{analysis} needs labels of images, but the data set digit_scenes-blue"):
        run_analysis(parse_analysis(analysis, {}), run.path, tmp_path / "out.csv", CPU, silent)
    assert not (tmp_path / "out.csv").exists()


OF_IMAGES = {"dataset": "digits", "partition": {"name": "iid", "clients": 8}, "model": "cnn_gn", "method": "fedavg"}
PLAIN = {key: value for key, value in BASE["training"].items() if key != "augmentation"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": "cnn_gn"},
            r"model cnn_gn gives scores of images, .* labels of pixels \(allowed: .*fcn_gn\)",
        ),
        (
            {**OF_IMAGES, "training": PLAIN, "model": "fcn_gn"},
            r"model fcn_gn gives scores of pixels, but the data set digits has labels of images \(allowed: .*cnn_gn",
        ),
        (
            {"method": "fedrcl"},
            r"the loss relaxed_contrastive needs labels of images, .* \(allowed: .*cross_entropy.*hard_pixels\)",
        ),
        (
            {**OF_IMAGES, "training": PLAIN, "method": BASE["method"]},
            r"the loss hard_pixels needs labels of pixels, .* \(allowed: (?!.*hard_pixels).*cross_entropy",
        ),
        (
            {"training": {**PLAIN, "augmentation": "mixup"}, "method": "fedavg"},
            r"augmentation mixup does not suit labels of pixels, .* \(allowed: flip, scaled_crop, or null\)",
        ),
        (
            {**OF_IMAGES, "training": {**PLAIN, "augmentation": "scaled_crop"}},
            r"augmentation scaled_crop does not suit labels of images",
        ),
    ],
)
def test_what_does_not_fit_the_labels_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        config(**changes)


def test_a_model_of_your_own_may_be_for_either(tmp_path, monkeypatch) -> None:
    source = (
        "from torch import nn\n\n"
        "def pixels(shape, classes):\n    return nn.Conv2d(shape[0], classes, 3, padding=1)\n\n"
        "def images(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))\n"
    )
    (tmp_path / "own.py").write_text(source, encoding="utf-8")
    trust(source.encode())
    monkeypatch.chdir(tmp_path)
    good, wrong = (config(model=f"own.py:{name}", method="fedavg") for name in ("pixels", "images"))
    assert train(good, tmp_path / "good" / "seed-0", CPU).metrics()["test_miou"].notna().all()
    with pytest.raises(UserError, match="scores are one for each image, but the data set has labels of pixels"):
        train(wrong, tmp_path / "wrong" / "seed-0", CPU)
