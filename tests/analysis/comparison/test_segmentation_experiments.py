"""Experiments with segmentation: runs are judged by their mean IoU, or refused where only accuracies are compared."""

from pathlib import Path

import pytest

from fedflat.analysis.comparison.adding import add
from fedflat.analysis.comparison.compare import compare
from fedflat.analysis.comparison.explore import render_explorer
from fedflat.analysis.comparison.run_table import (
    TARGETS,
    curve_table,
    finished_runs,
    run_columns,
    run_table,
)
from fedflat.analysis.comparison.study.source import StudySource
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import train_all

STORED = PAPER_TABLES.parent / "results" / "baselines" / "quick"
SCENES = """
name: scenes
dataset: digit_scenes
model: fcn_gn
training: {rounds: 2, local_steps: 2, batch_size: 8, lr: 0.02, local_momentum: 0.9}
evaluation: {training_images: 50}
grid:
  partition: [{name: by_group, clients: 4}]
  participation: [{active: 2}]
  seeds: [0, 1]
methods:
  fedavg: {}
"""

IID = "{name: iid, clients: 4}"
PARTS = """
parts:
  plain: {dataset: digits, model: cnn_gn}
  pixels: {dataset: digit_scenes, model: fcn_gn}
"""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> RequestedExperiment:
    folder = tmp_path_factory.mktemp("scenes")
    (folder / "scenes.yaml").write_text(SCENES, encoding="utf-8")
    (folder / "analyses.yaml").write_text("convergence: {targets: [1, 99]}\n", encoding="utf-8")
    train_all(folder / "scenes.yaml", folder / "results")
    return RequestedExperiment(str(folder / "scenes.yaml"), folder / "results")


def test_numbers_of_runs_are_mious(scenes: RequestedExperiment) -> None:
    table, curves = run_table(scenes), curve_table(scenes)
    assert list(table) == run_columns([1.0, *TARGETS, 99.0], further=["test_miou", "train_miou"])
    for run, row in zip(finished_runs(scenes), table.to_dict("records"), strict=True):
        last = run.metrics.iloc[-1]
        assert {name: row[name] for name in ("test_miou", "train_miou")} == last[["test_miou", "train_miou"]].to_dict()
        assert row["test_accuracy"] == last["test_accuracy"]
        assert row["generalisation_gap"] == last["train_miou"] - last["test_miou"]
        assert (row["rounds_to_1"], row["last_round"]) == (1, 2)
        of_run = curves[curves["identity"] == row["identity"]]
        assert of_run["test_miou"].tolist() == run.metrics["test_miou"].tolist()


def test_the_page_shows_mious(scenes: RequestedExperiment) -> None:
    page = render_explorer(scenes).read_text(encoding="utf-8")
    assert "mIoU at a budget" in page
    assert "The test mIoU of each run's last evaluation" in page
    assert "accuracy of each run's" not in page


def test_comparisons_of_accuracies_are_refused(scenes: RequestedExperiment, tmp_path: Path) -> None:
    message = r"experiment scenes has data sets for segmentation \(digit_scenes-blue\) \(allowed: data sets with one"
    with pytest.raises(UserError, match=message):
        add([scenes], "quick", tmp_path / "stored")
    assert not (tmp_path / "stored").exists()
    with pytest.raises(UserError, match=message):
        compare("fedavg", "quick", scenes.results, experiment=scenes.name_or_file, baselines=STORED)
    with pytest.raises(UserError, match=message):
        StudySource(scenes.name_or_file, scenes.results, {}, from_runs=True).runs()


def test_default_layouts_show_mious(scenes: RequestedExperiment) -> None:
    tables, figures = Tables(scenes), Figures(scenes)
    table = tables.layout("accuracy")
    assert (table.title, table.columns[0].metric) == ("Test mIoU (%)", "test_miou")
    means = run_table(scenes)["test_miou"]
    assert f"{means.mean():.2f} ± {means.std():.2f}" in tables.render("accuracy")[0].read_text(encoding="utf-8")
    curves = figures.layout("convergence")
    assert (curves.metric, curves.caption.split(" on ")[0]) == ("test_miou", "mIoU of the global model")
    differences = figures.layout("differences")
    assert (differences.metric, differences.title) == ("test_miou", "Final test mIoU compared with FedAvg")


def test_default_layouts_of_parts_with_different_scores(tmp_path: Path) -> None:
    """What shows all parts is left out, with the reason."""
    mixed = SCENES.replace("dataset: digit_scenes\nmodel: fcn_gn\n", "").replace("{name: by_group, clients: 4}", IID)
    (file := tmp_path / "mixed.yaml").write_text(mixed + PARTS, encoding="utf-8")
    tables = Tables(RequestedExperiment(str(file), tmp_path))
    assert "accuracy" not in tables.names()
    [line] = [line for line in tables.left_out() if "accuracy" in line.split("(")[0]]
    assert "test_score differs between the parts of experiment scenes (plain: test_accuracy, pixels: test_miou)" in line
    quick = Tables(RequestedExperiment("quick", tmp_path)).layout("accuracy")
    assert (quick.title, quick.columns[0].metric) == ("Test accuracy (%)", "test_accuracy")
