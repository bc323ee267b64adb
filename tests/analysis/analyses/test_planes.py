"""Planes and lines through models of real runs: the models' own losses at their places, and what is refused."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from fedflat.analysis.analyses import parse_analysis, scores
from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.bench.data.dataset import Subset
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell

CPU = torch.device("cpu")
EXPERIMENT = """
name: planes
dataset: digits
model: cnn_gn
training: {rounds: 2, local_epochs: 1, batch_size: 24, lr: 0.1}
evaluation: {every: 2, snapshot_every: 1, local_models: last}
grid:
  partition: [{name: dirichlet, alpha: 0.1, clients: 20}]
  participation: [{active: 4}]
  seeds: [3]
methods:
  fedavg: {}
  fedsam: {hyperparameters: {rho: 0.05}}
  fedasam: {hyperparameters: {rho: 0.3, eta_a: 0.2}}
"""
METHODS = ("fedavg", "fedsam", "fedasam")
PLANE = {"through": ["fedsam", "fedasam"], "points": 3, "images": 100}


@pytest.fixture(scope="session")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the cells of three methods."""
    folder = tmp_path_factory.mktemp("planes")
    (folder / "planes.yaml").write_text(EXPERIMENT, encoding="utf-8")
    for cell in load_experiment(str(folder / "planes.yaml")).cells().values():
        train_cell("planes", cell, folder, CPU, str).rename(folder / cell.address.method)
    return folder


def answer(cells: Path, name: str, options: Mapping[str, Any], out: Path, *compared: str, run: str = "fedavg", log=str):
    run_analysis(parse_analysis(name, options), cells / run, out, CPU, log, [cells / other for other in compared])
    return pd.read_csv(out)


def loss_and_error(folder: Path, w: Tensor, subset: Subset, images: int | None) -> tuple[float, float]:
    run = AnalysedRun(RunDirectory(folder / "seed-3"), CPU)
    loss, accuracy = run.setup.objective.evaluate(w, run.sample(subset, images).data)
    return loss, 100 - accuracy


def final(run: Path) -> Tensor:
    return RunDirectory(run / "seed-3").final(CPU).w


def test_a_plane_has_each_method_s_final_model_at_its_place(cells: Path, tmp_path: Path) -> None:
    table = answer(cells, "plane", PLANE, tmp_path / "plane.csv", "fedsam", "fedasam")
    for part in ("train", "test"):
        rows = table[table["data"] == part]
        assert len(rows) == 9 + 3
        assert rows["definition"].str.contains(f"100 .*{part}.* final models of fedavg, fedsam, fedasam").all()
        marked = rows[rows["model"].notna()].set_index("model")
        assert tuple(marked.index) == METHODS
        for method in METHODS:
            expected = loss_and_error(cells / method, final(cells / method), part, 100)
            np.testing.assert_allclose(marked.loc[method, "loss"], expected[0], rtol=1e-5)
            assert abs(marked.loc[method, "error"] - expected[1]) <= 1, "one image of a hundred may tie"
        assert marked.loc["fedavg", ["x", "y"]].tolist() == [0, 0]
        place = marked.loc["fedasam", ["x", "y"]].astype(float)
        distance = float((final(cells / "fedasam") - final(cells / "fedavg")).norm())
        assert np.hypot(*place) == pytest.approx(distance, rel=1e-5), "coordinates are Euclidean"
        span = marked["x"].max() - marked["x"].min()
        grid = rows[rows["model"].isna()]
        assert grid["x"].max() - marked["x"].max() == pytest.approx(0.2 * span)
        assert marked["x"].min() - grid["x"].min() == pytest.approx(0.2 * span)


@pytest.mark.parametrize("options", [{}, {"clients": [7, 2, 11], "round": 1}])
def test_a_local_plane_has_each_local_model_at_its_place(cells: Path, tmp_path: Path, options: dict) -> None:
    table = answer(cells, "local_plane", {"points": 2, **options}, tmp_path / "x.csv", run="fedsam")
    run = AnalysedRun(RunDirectory(cells / "fedsam" / "seed-3"), CPU)
    state = run.state(options.get("round", 2))
    clients = options.get("clients", run.setup.active(state)[:3])
    trained = run.setup.federation.train_clients(state, clients)
    marked = table[table["model"].notna()].set_index(["data", "model"])
    assert len(marked) == 6
    for client in clients:
        for part in ("train", "test"):
            expected = loss_and_error(cells / "fedsam", trained[client].w, part, None)
            found = marked.loc[(part, f"client {client}")]
            assert found["loss"] == pytest.approx(expected[0], rel=1e-5)
            assert found["error"] == pytest.approx(expected[1], abs=0.12)


def test_a_line_goes_from_the_initial_to_the_final_model(cells: Path, tmp_path: Path) -> None:
    table = answer(cells, "interpolation", {"steps": 4, "beyond": 1, "data": ["test"]}, tmp_path / "x.csv")
    assert table["t"].tolist() == [-0.25, 0, 0.25, 0.5, 0.75, 1, 1.25]
    initial = AnalysedRun(RunDirectory(cells / "fedavg" / "seed-3"), CPU).setup.objective.initial()
    at = table.set_index("t")
    for t, w in ((0, initial), (1, final(cells / "fedavg")), (0.5, (initial + final(cells / "fedavg")) / 2)):
        expected = loss_and_error(cells / "fedavg", w, "test", None)
        assert at.loc[t, ["loss", "error"]].tolist() == pytest.approx(expected, rel=1e-5, abs=0.12)


def test_a_line_goes_to_another_method_s_model(cells: Path, tmp_path: Path) -> None:
    options = {"steps": 1, "beyond": 0, "towards": "fedasam"}
    table = answer(cells, "interpolation", options, tmp_path / "x.csv", "fedasam")
    for t, method in enumerate(("fedavg", "fedasam")):
        losses = table[table["t"] == t].set_index("data")["loss"]
        for part in ("train", "test"):
            expected = loss_and_error(cells / method, final(cells / method), part, None)[0]
            assert losses[part] == pytest.approx(expected, rel=1e-5)


def test_a_surface_around_a_local_model_is_on_its_client_s_images(cells: Path, tmp_path: Path) -> None:
    table = answer(cells, "surface", {"points": 3, "model": "local"}, tmp_path / "a.csv")
    run = AnalysedRun(RunDirectory(cells / "fedavg" / "seed-3"), CPU)
    models = run.directory.local_models(2, CPU)
    client = next(iter(models))
    loss, _ = run.setup.objective.evaluate(models[client], run.client_batches(client))
    centre = table[(table["a"] == 0) & (table["b"] == 0)]
    assert centre["loss"].item() == pytest.approx(loss, rel=1e-5)
    definition = f"client {client}'s model of round 2: mean cross-entropy of all its {len(run.setup.split[client])} "
    assert table["definition"].str.startswith(definition).all()


def test_a_surface_around_a_local_model_needs_one_and_all_its_images() -> None:
    local = parse_analysis("surface", {"model": "local"})
    local.check(Evaluation(local_models="last"))
    with pytest.raises(UserError, match=r"needs local models of the runs, but evaluation\.local_models is null"):
        local.check(Evaluation())
    for options in ({"data": "test"}, {"images": 50}):
        with pytest.raises(UserError, match="data and images must not be set"):
            parse_analysis("surface", {"model": "local", **options})


def test_a_reference_gives_every_surface_its_own_directions(cells: Path, tmp_path: Path) -> None:
    """At the coordinates (1, 0) stands w + d1: of the reference itself the same with and without the option."""
    options = {"points": 3, "images": 50}
    own = answer(cells, "surface", options, tmp_path / "a.csv", run="fedasam")
    shared = {**options, "reference": "fedasam"}
    same = answer(cells, "surface", shared, tmp_path / "b.csv", "fedasam", run="fedasam")
    assert same["loss"].tolist() == own["loss"].tolist()
    assert same["definition"].str.endswith("filters of fedasam").all()
    plain = answer(cells, "surface", options, tmp_path / "c.csv")
    other = answer(cells, "surface", shared, tmp_path / "d.csv", "fedasam")
    centre = (plain["a"] == 0) & (plain["b"] == 0)
    assert (other["loss"] == plain["loss"]).tolist() == centre.tolist()


@pytest.mark.parametrize(
    ("name", "options", "compared"),
    [
        ("surface", {"points": 3, "images": 50}, ()),
        ("interpolation", {"steps": 3, "beyond": 1, "images": 50}, ()),
        ("plane", PLANE, ("fedsam", "fedasam")),
        ("local_plane", {"points": 4, "images": 50}, ()),
    ],
)
def test_both_evaluators_give_the_same_table(
    name: str, options: dict, compared: tuple[str, ...], cells: Path, tmp_path: Path
) -> None:
    """The package's rows say so; rows of the three models are FedFlat's own."""
    own = answer(cells, name, options, tmp_path / "own.csv", *compared)
    package = answer(cells, name, {**options, "evaluator": "loss_landscapes"}, tmp_path / "package.csv", *compared)
    assert package["definition"].str.endswith("; points by loss-landscapes 3.0.6").all()
    without = ["definition", "options"]
    pd.testing.assert_frame_equal(package.drop(columns=without), own.drop(columns=without), rtol=1e-5)
    assert not list(tmp_path.glob("*.unfinished"))


def test_points_computed_together_are_put_where_they_belong(
    cells: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, with a last call of fewer points."""
    single = answer(cells, "plane", PLANE, tmp_path / "a.csv", "fedsam", "fedasam")
    monkeypatch.setattr(scores, "points_together", lambda *_: 5)
    together = answer(cells, "plane", PLANE, tmp_path / "b.csv", "fedsam", "fedasam")
    pd.testing.assert_frame_equal(together, single, rtol=1e-5, atol=1.0)
    np.testing.assert_allclose(together["loss"], single["loss"], rtol=1e-5)


def test_a_killed_analysis_continues_and_answers_the_same_bytes(cells: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.csv", tmp_path / "killed.csv"
    options = {"points": 15}
    answer(cells, "surface", options, whole)
    command = "from fedflat.cli.app import app; app()"
    arguments = ["analyse", "surface", str(cells / "fedavg"), "--set", "points=15", "--out", str(killed)]
    process = subprocess.Popen([sys.executable, "-c", command, *arguments, "--device", "cpu"])
    stored = tmp_path / ".killed-seed-3.unfinished"
    while process.poll() is None and not (stored.is_file() and stored.read_bytes().count(b"\n") > 10):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not killed.exists()
    done = stored.read_bytes().count(b"\n") - 1
    with stored.open("ab") as file:
        file.write(b"[3")  # torn
    said: list[str] = []
    answer(cells, "surface", options, killed, log=said.append)
    assert said[0] == f"seed 3: {done} of 225 steps were already done"
    assert killed.read_bytes() == whole.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["killed.csv", "whole.csv"]


def test_stored_points_of_other_options_are_not_taken(cells: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.csv"
    stored = tmp_path / ".x-seed-3.unfinished"
    analysis = parse_analysis("surface", {"points": 3, "images": 40})
    run = RunDirectory(cells / "fedavg" / "seed-3")
    analysis.of_run(AnalysedRun(run, CPU, partial_results=stored))
    assert stored.read_bytes().count(b"\n") == 10
    last = {"extent": 2, "points": 3}
    for options in ({"points": 3, "images": 41}, {"points": 3, "images": 40, "data": "test"}, last):
        said: list[str] = []
        parse_analysis("surface", options).of_run(AnalysedRun(run, CPU, partial_results=stored, log=said.append))
        assert said == [], options
    said = []
    answer(cells, "surface", last, out, log=said.append)
    assert said == ["seed 3: 9 of 9 steps were already done"]


def test_a_plane_through_three_partitions(cells: Path, tmp_path: Path) -> None:
    """Caldarola et al., Figure 2 (a, b): models are named by their partitions, and lie where they are."""
    changes = {"grid.partition": [{"name": "dirichlet", "alpha": alpha, "clients": 20} for alpha in (0.6, 5)]}
    other_cells = load_experiment(str(cells / "planes.yaml"), changes).cells().values()
    others = [cell for cell in other_cells if cell.path.endswith("/fedavg")]
    folders = [train_cell(None, cell, tmp_path, CPU, str) for cell in others]
    alphas = ["dirichlet-0.6", "dirichlet-5"]
    options = {**PLANE, "through": alphas}
    table = answer(cells, "plane", options, tmp_path / "x.csv", *map(str, folders))
    models = table[(table["data"] == "train") & table["model"].notna()]
    assert list(models["model"]) == ["dirichlet-0.1", *alphas]
    runs = [RunDirectory(folder / "seed-3") for folder in (cells / "fedavg", *folders)]
    w, *ends = (run.final(CPU).w for run in runs)
    distances = models[["x", "y"]].pow(2).sum(axis=1).pow(0.5)
    assert list(distances) == pytest.approx([0, *(float((end - w).norm()) for end in ends)], rel=1e-5)
    identities = [f"{alpha}={run.identity}" for alpha, run in zip(alphas, runs[1:], strict=True)]
    assert set(table["compared_with"]) == {"; ".join(identities)}


@pytest.mark.parametrize(
    ("name", "options", "compared", "message"),
    [
        ("plane", {}, (), "list the other two in its option through"),
        (
            "plane",
            {"through": ["fedsam", "fedasam"]},
            (),
            r"runs of: fedsam, fedasam \(given: none\)",
        ),
        (
            "plane",
            {"through": ["fedsam", "fedasam"]},
            ("fedasam", "fedsam"),
            r"\(given: fedasam with dirichlet-0.1, fedsam",
        ),
        ("plane", {"through": ["fedavg", "fedsam"]}, ("fedavg", "fedsam"), "they do not define a plane"),
        (
            "interpolation",
            {},
            ("fedsam",),
            "interpolation with these options compares no runs: leave out --compare-with",
        ),
        (
            "local_plane",
            {"clients": [0, 1, 20]},
            (),
            "three of the run's 20 clients, .* requested: 0, 1, 20",
        ),
        ("local_plane", {"round": 7}, (), "has no saved state after round 7"),
        ("hessian", {}, ("fedsam",), "hessian with these options compares no runs: leave out --compare-with"),
        ("interpolation", {"towards": "fedsam"}, (), r"runs of: fedsam \(given: none\)"),
        ("surface", {"reference": "fedsam"}, (), r"runs of: fedsam \(given: none\)"),
    ],
)
def test_what_does_not_fit_is_one_line(
    cells: Path, tmp_path: Path, name: str, options: dict, compared: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        answer(cells, name, options, tmp_path / "x.csv", *compared)
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plane", {"through": ["fedsam"]}),
        ("local_plane", {"clients": [1, 2]}),
        ("local_plane", {"clients": [1, 2, 2]}),
        ("plane", {"margin": -1}),
        ("plane", {"data": []}),
        ("interpolation", {"steps": 0}),
        ("surface", {"biases": "one"}),
    ],
)
def test_options_that_make_no_sense_are_refused(name: str, options: dict) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        parse_analysis(name, options)
