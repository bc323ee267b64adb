"""Confusion matrices and IoU per class of a run of segmentation, against the run's own scores and counts by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.data.label_maps import UNLABELLED
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from tests.analysis.conftest import analyse, train_all
from tests.problems import stored

CELL = "digit_scenes-blue/by_group/2-of-4/fedavg"
SCENES = """
name: scenes
dataset: digit_scenes
model: fcn_gn
training: {rounds: 2, local_steps: 8, batch_size: 8, lr: 0.05, local_momentum: 0.9}
evaluation: {every: 2, training_images: 600}
grid:
  partition: [{name: by_group, clients: 4}]
  participation: [{active: 2}]
  seeds: [3]
methods: {fedavg: {}}
"""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    (folder / "scenes.yaml").write_text(SCENES, encoding="utf-8")
    train_all(folder / "scenes.yaml", folder / "results")
    return folder


@pytest.fixture(scope="module")
def rows(scenes: Path) -> pd.DataFrame:
    frame = analyse(scenes, "scenes", CELL, "confusion", {})
    return frame.assign(part=frame["part"].fillna(""))


def run_of(scenes: Path) -> RunDirectory:
    return RunDirectory(stored(scenes / "results", 3))


def matrix(rows: pd.DataFrame, part: str) -> np.ndarray:
    pixels = rows[(rows["metric"] == "pixels") & (rows["part"] == part)]
    return pixels.pivot(index="class", columns="predicted_class", values="value").to_numpy()


def test_matrices_are_counts_of_labelled_pixels(scenes: Path, rows: pd.DataFrame) -> None:
    run = run_of(scenes)
    setup = RunSetup.build(run.config, torch.device("cpu"))
    test, parts = setup.dataset.test, setup.dataset.test_parts
    x, _ = setup.test.batch(torch.arange(len(test)))
    predicted = setup.objective.logits(run.final(torch.device("cpu")).w, x).argmax(1).numpy()
    for part, places in {"": np.arange(len(test)), **parts}.items():
        labels, labelled = test.maps[places], test.maps[places] != UNLABELLED
        by_hand = np.zeros((11, 11))
        np.add.at(by_hand, (labels[labelled], predicted[places][labelled]), 1)
        assert np.abs(matrix(rows, part) - by_hand).sum() <= 20, "batches of another size are rounded otherwise"
        assert matrix(rows, part).sum() == labelled.sum()
        assert np.array_equal(matrix(rows, part).sum(1), by_hand.sum(1))
    assert np.array_equal(matrix(rows, ""), matrix(rows, "seen") + matrix(rows, "unseen"))


def test_iou_is_that_of_the_matrix_and_its_mean_that_of_the_run(scenes: Path, rows: pd.DataFrame) -> None:
    last = run_of(scenes).metrics().iloc[-1]
    for part in ("", "seen", "unseen"):
        iou = rows[(rows["metric"] == "iou") & (rows["part"] == part)]
        counts = matrix(rows, part)
        expected = 100 * np.diag(counts) / (counts.sum(0) + counts.sum(1) - np.diag(counts))
        assert iou["value"].to_numpy() == pytest.approx(expected)
        assert list(iou["class_name"][:2]) == ["background", "digit 0"]
        column = "test_miou" if not part else f"test_miou_{part}"
        assert iou["value"].mean() == pytest.approx(last[column], abs=0.02)


def test_training_images(scenes: Path) -> None:
    frame = analyse(scenes, "scenes", CELL, "confusion", {"data": "train"})
    assert frame["part"].isna().all()
    mean = frame.loc[frame["metric"] == "iou", "value"].mean()
    assert mean == pytest.approx(run_of(scenes).metrics()["train_miou"].iloc[-1], abs=0.02)
    assert "600 training images" in frame["definition"][0]


def test_labels_of_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="confusion needs labels of pixels, but the data set digits has"):
        RequestedExperiment("quick", tmp_path).analysed("confusion")
