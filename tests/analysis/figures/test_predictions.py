"""Predicted classes of pixels: what the analysis stores, the figure, and where neither is possible."""

import base64
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedflat.analysis.analyses.pictures import read_pictures
from fedflat.analysis.analyses.stored import COLUMNS
from fedflat.analysis.analyses.training.predictions import Predictions, pixels
from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.kinds.predictions import PALETTE
from fedflat.analysis.layouts.titles import trained_data
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.data.label_maps import UNLABELLED
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import write_checked_csv
from fedflat.bench.files.lists import read_list
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from tests.analysis.conftest import analyse, read_rows, train_all, words
from tests.analysis.figures.drawings import legend
from tests.problems import stored as run_of

CELL = "digit_scenes-blue/by_group/2-of-4/"
SCENES = """
name: scenes
dataset: digit_scenes
model: fcn_gn
training: {rounds: 2, local_steps: 8, batch_size: 8, lr: 0.05, local_momentum: 0.9}
evaluation: {every: 2, training_images: 50}
grid:
  partition: [{name: by_group, clients: 4}]
  participation: [{active: 2}]
  seeds: [3]
methods: {fedavg: {}, fedprox: {hyperparameters: {lam: 0.1}}, fedsam: {hyperparameters: {rho: 0.05}}}
"""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scenes.yaml, and the runs and predictions of FedAvg and FedProx; FedSAM has not been run."""
    folder = tmp_path_factory.mktemp("scenes")
    only = folder / "trained.yaml"
    only.write_text(SCENES.replace(", fedsam: {hyperparameters: {rho: 0.05}}", ""), encoding="utf-8")
    train_all(only, folder / "results")
    (folder / "scenes.yaml").write_text(SCENES, encoding="utf-8")
    for method in ("fedavg", "fedprox"):
        analyse(folder, "scenes", CELL + method, "predictions", {})
    return folder


def requested(scenes: Path) -> RequestedExperiment:
    return RequestedExperiment(str(scenes / "scenes.yaml"), scenes / "results")


def stored(scenes: Path, method: str) -> pd.DataFrame:
    return rows_of(scenes, "scenes", CELL + method)


def rows_of(folder: Path, experiment: str, cell: str) -> pd.DataFrame:
    """The rows of a list of predictions, with the contents of the pictures."""
    list_file = ResultPaths(folder / "results").analysis(experiment, cell, "predictions")
    [row] = read_list(list_file, COLUMNS, "")
    return read_pictures((folder / "results" / row["path"]).parent, read_rows(list_file), Predictions.pictures, "")


def test_images_labels_and_predictions_are_those_of_data_and_model(scenes: Path) -> None:
    run = RunDirectory(run_of(scenes / "results", 3, "fedavg"))
    setup, rows = RunSetup.build(run.config, torch.device("cpu")), stored(scenes, "fedavg")
    test, parts = setup.dataset.test, setup.dataset.test_parts
    assert list(rows["part"]) == ["seen", "seen", "unseen", "unseen"]
    assert all(row.image in parts[row.part] for row in rows.itertuples())
    assert rows["image"].is_unique
    x, _ = setup.test.batch(torch.tensor(rows["image"]))
    predicted = setup.objective.logits(run.final(torch.device("cpu")).w, x).argmax(1).numpy()
    for row, of_model in zip(rows.itertuples(), predicted, strict=True):
        assert np.array_equal(pixels(row.picture), test.images[row.image].transpose(1, 2, 0))
        assert np.array_equal(pixels(row.labels), test.maps[row.image])
        assert (pixels(row.predicted) == of_model).mean() > 0.99, "channels in another order are rounded otherwise"
    assert "4 of 298 test images" in rows["definition"][0]


def test_large_images_are_made_smaller_without_new_classes(scenes: Path) -> None:
    folder = scenes / "small"
    shutil.copytree(scenes / "results", folder / "results")
    analyse(folder, "scenes", CELL + "fedavg", "predictions", {"images": 3, "side": 10})
    rows = rows_of(folder, "scenes", CELL + "fedavg")
    whole = stored(scenes, "fedavg")
    assert list(rows["part"]) == ["seen", "seen", "unseen"]
    for row in rows.itertuples():
        assert pixels(row.picture).shape == (10, 10, 3)
        assert pixels(row.labels).shape == pixels(row.predicted).shape == (10, 10)
    assert rows["image"][0] == whole["image"][0]
    assert set(pixels(rows["labels"][0]).ravel()) <= set(pixels(whole["labels"][0]).ravel())


def test_the_figure_shows_them_with_the_miou_of_each_method(scenes: Path) -> None:
    scene, requested_experiment = stored(scenes, "fedprox"), requested(scenes)
    layout = Figures(requested_experiment).layout("predictions")
    figure = figures.draw(layout, requested_experiment.tidy)
    grid = np.array(figure.subfigs[0].get_axes() if figure.subfigs else figure.get_axes()).reshape(4, 4)
    shown = [[axes.images[0].get_array() for axes in line] for line in grid]
    for row, (picture, labels, _, fedprox) in zip(scene.itertuples(), shown, strict=True):
        assert np.array_equal(picture, pixels(row.picture))
        assert np.array_equal(labels, PALETTE[pixels(row.labels)])
        assert np.array_equal(fedprox, PALETTE[pixels(row.predicted)])
    (setting,) = layout.settings(requested_experiment.experiment)
    metrics = requested_experiment.tidy.gather("metrics", [CellAddress(setting, "fedprox")])
    assert grid[0, 3].get_title() == f"FedProx\n{metrics['test_miou'].iloc[-1]:.1f} %"
    assert [axes.get_ylabel() for axes in grid[:, 0]] == ["Seen", "Seen", "Unseen", "Unseen"]
    assert legend(figure)[0] == "background"
    assert legend(figure)[-1] == "no label"
    assert "Runs of seed 3." in words(figures.caption(layout, requested_experiment.tidy))
    assert "Not run: FedSAM." in words(figures.caption(layout, requested_experiment.tidy))


def test_pictures_are_files_next_to_a_table_without_them(scenes: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(scenes, tmp_path / "scenes"))
    [file] = run_of(folder / "results", 3, "fedprox").glob("analyses/predictions-*.csv")
    assert file.stat().st_size < 10_000
    [first, *_] = pd.read_csv(file)["picture"]
    before = contents(requested(folder))
    place = file.parent / first
    place.write_bytes(place.read_bytes()[:-20])
    with pytest.raises(UserError, match=rf"{first}' is damaged .*: delete '{file}', and "):
        contents(requested(folder))
    rows = pd.read_csv(file)
    earlier = {name: [base64.b64encode(content).decode() for content in before[name]] for name in Predictions.pictures}
    write_checked_csv(file, rows.assign(**earlier))
    pd.testing.assert_frame_equal(contents(requested(folder)), before)


def contents(experiment: RequestedExperiment) -> pd.DataFrame:
    return experiment.tidy.gather("predictions", [CellAddress.of(CELL + "fedprox")])


TWO_PARTS = """
name: two
extends: scenes.yaml
description: Averaged and local statistics.
methods: {fedavg: {}, silobn: {name: fedavg, title: SiloBN}}
parts:
  averaged: {dataset: digit_scenes, model: fcn_bn, only: [fedavg]}
  kept: {dataset: digit_scenes, model: {name: fcn_bn, buffers: local}, only: [silobn]}
  others: {dataset: {name: digit_scenes, unseen: red}, model: {name: fcn_bn, buffers: local}, only: [silobn]}
"""
IN_TWO_PARTS = """
kind: predictions
title: Two parts
caption: Test images.
methods: [fedavg, silobn]
select: {dataset: averaged}
select_by_method: {silobn: {dataset: kept}}
"""


@pytest.fixture(scope="module")
def two_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    (folder / "scenes.yaml").write_text(SCENES, encoding="utf-8")
    (folder / "two.yaml").write_text(TWO_PARTS, encoding="utf-8")
    (folder / "figures").mkdir()
    (folder / "figures" / "in_two_parts.yaml").write_text(IN_TWO_PARTS, encoding="utf-8")
    train_all(folder / "two.yaml", folder / "results")
    for part, method in (("averaged", "fedavg"), ("kept", "silobn"), ("others", "silobn")):
        analyse(folder, "two", f"{part}/by_group/2-of-4/{method}", "predictions", {})
    return folder


def test_a_figure_shows_methods_of_two_parts(two_parts: Path) -> None:
    two = RequestedExperiment(str(two_parts / "two.yaml"), two_parts / "results")
    layout = Figures(two).layout("in_two_parts")
    cells = ["averaged/by_group/2-of-4/fedavg", "kept/by_group/2-of-4/silobn"]
    assert [cell.path for cell in layout.cells(two.experiment)] == cells
    figure = figures.draw(layout, two.tidy)
    grid = np.array(figure.get_axes()).reshape(4, 4)
    for column, cell in zip(grid.T[2:], cells, strict=True):
        rows = rows_of(two_parts, "two", cell)
        assert all(
            np.array_equal(axes.images[0].get_array(), PALETTE[pixels(text)])
            for axes, text in zip(column, rows["predicted"], strict=True)
        )
        scores = two.tidy.gather("metrics", [CellAddress.of(cell)])["test_miou"]
        assert column[0].get_title().endswith(f"\n{scores.iloc[-1]:.1f} %")
    assert grid[0, 3].get_title().startswith("SiloBN")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("dataset: kept", "dataset: others"), "images of others/by_group/2-of-4/silobn are not those of averaged/"),
        (("dataset: kept", "dataset: keep"), "unknown dataset of experiment two 'keep'; did you mean 'kept'"),
        (("{silobn:", "{silo:"), "unknown method in select_by_method 'silo'; did you mean 'silobn'"),
    ],
)
def test_a_figure_with_a_wrong_second_part_is_refused(change: tuple[str, str], message: str, two_parts: Path) -> None:
    file = two_parts / "figures" / "in_two_parts.yaml"
    file.write_text(IN_TWO_PARTS.replace(*change), encoding="utf-8")
    try:
        two = RequestedExperiment(str(two_parts / "two.yaml"), two_parts / "results")
        with pytest.raises(UserError, match=message):
            figures.draw(Figures(two).layout("in_two_parts"), two.tidy)
    finally:
        file.write_text(IN_TWO_PARTS, encoding="utf-8")


def test_at_smoke_scale_classes_have_the_names_of_the_trained_data() -> None:
    for scale, name in (("smoke", "background"), ("paper", "road")):
        parts = load_experiment("fedsam_caldarola", {"scale": scale}).resolved_parts
        assert trained_data(parts["cityscapes_uniform"]).class_names[0] == name


def test_classes_have_colours_of_their_own() -> None:
    assert len({tuple(colour) for colour in (*PALETTE[:38], PALETTE[UNLABELLED])}) == 39


def test_only_data_with_labels_of_pixels_have_the_figure(tmp_path: Path) -> None:
    both = tmp_path / "both.yaml"
    parts = "parts:\n  images: {dataset: digits, model: cnn_gn}\n  pixels: {dataset: digit_scenes, model: fcn_gn}\n"
    text = SCENES.replace("dataset: digit_scenes\nmodel: fcn_gn\n", parts).replace("name: by_group", "name: iid")
    both.write_text(text.replace("name: scenes", "name: both"), encoding="utf-8")
    names = Figures(RequestedExperiment(str(both), tmp_path)).names()
    assert [name for name in names if name.startswith("predictions")] == ["predictions_pixels"]
    assert [name for name in names if name.startswith("surfaces")] == ["surfaces_images", "surfaces_pixels"]
    assert {cell.split("/")[0] for cell in RequestedExperiment(str(both), tmp_path).analysed("predictions")} == {
        "pixels"
    }
    quick = RequestedExperiment("quick", tmp_path)
    for refused in (lambda: quick.analysed("predictions"), lambda: Figures(quick).layout("predictions")):
        with pytest.raises(UserError, match="predictions needs labels of pixels, but the data set digits has") as error:
            refused()
        assert "\n" not in str(error.value)
