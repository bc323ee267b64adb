"""The Python API, on the runs of one cell of the quick experiment: its examples, its errors, and its imports."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fedflat
from fedflat import curvature, results, simulation
from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.training.run_directory import metrics_columns
from fedflat.bench.training.train import train_cell
from tests.analysis.conftest import analysed
from tests.places import ROOT
from tests.problems import stored

CPU = torch.device("cpu")
CELL = "digits/dirichlet-0.1/4-of-20/fedsam"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder whose results/ holds the runs of one cell, and one analysis of them."""
    folder = tmp_path_factory.mktemp("api")
    paths = ResultPaths(folder / "results")
    cell = load_experiment("quick").cell(CELL)
    train_cell("quick", cell, paths.root, CPU, lambda line: None)
    analysed(paths, "quick", CELL, "convergence", parse_analysis("convergence", {}))
    return folder


@pytest.mark.parametrize("module", [fedflat, results, curvature, simulation], ids=lambda module: module.__name__)
def test_examples(module, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with torch.random.fork_rng():
        outcome = doctest.testmod(module)
    assert outcome.failed == 0
    assert outcome.attempted > 0 or module is fedflat


def test_the_page_of_the_docs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with torch.random.fork_rng():
        outcome = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False)
    assert outcome.failed == 0 < outcome.attempted


def test_runs_have_the_metrics_of_the_last_round(folder):
    table = fedflat.runs("quick", results=folder / "results")
    first = ["experiment", "dataset", "partition", "participation", "method", "seed", "round"]
    assert list(table)[: len(first)] == first
    assert table["seed"].tolist() == [0, 1, 2]
    rounds = fedflat.metrics("quick", results=folder / "results")
    assert len(rounds) == 3 * 30
    last = rounds[rounds["round"] == 30].reset_index(drop=True)
    assert last["test_accuracy"].tolist() == table["test_accuracy"].tolist()
    assert table["diverged"].tolist() == [False] * 3


def test_an_analysis_names_its_runs(folder):
    table = fedflat.analysis_values("quick", "convergence", results=folder / "results")
    assert set(table["identity"]) == set(fedflat.runs("quick", results=folder / "results")["identity"])


def test_the_hessian_of_a_runs_model(folder):
    run = fedflat.load_run(stored(folder / "results"))
    model = run.model()
    before = [parameter.clone() for parameter in model.parameters()]
    x, y = run.data("train")
    top = fedflat.hessian(model, (x[:200], y[:200]), k=2)
    in_batches = fedflat.hessian(model, (x[:200], y[:200]), k=2, batch_size=64)
    assert top.converged
    assert top.eigenvalues == pytest.approx(in_batches.eigenvalues, rel=1e-3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize(
    ("name", "options", "measure"),
    [
        ("surface", {"points": 3}, lambda model, data: fedflat.surface(model, data, points=3)[["loss", "error"]]),
        ("sharpness", {"radii": [0.1]}, lambda model, data: pd.DataFrame([fedflat.sharpness(model, data, rho=0.1)])),
    ],
)
def test_measures_of_an_own_model_are_those_of_the_analyses(name, options, measure, folder, tmp_path):
    """Of seed 0, whose directions a surface has by default."""
    cell = ResultPaths(folder / "results").lists("quick", CELL)
    run_analysis(
        parse_analysis(name, {**options, "data": "train"}), cell, tmp_path / "rows.csv", CPU, lambda line: None
    )
    rows = pd.read_csv(tmp_path / "rows.csv")
    rows = rows[rows["seed"] == 0]
    run = fedflat.load_run(next(folder.glob("results/store/**/seed-0")))
    measured = measure(run.model(), run.data("train"))
    expected = rows[["loss", "error"]] if name == "surface" else rows[["sharpness"]]
    assert measured.to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-5)


def test_errors_are_one_line(folder, tmp_path):
    options = {"results": folder / "results"}
    with pytest.raises(fedflat.UserError, match="unknown experiment 'quik'; did you mean 'quick'"):
        fedflat.runs("quik")
    with pytest.raises(fedflat.UserError, match="train them with: snakemake --cores 2 quick_runs"):
        fedflat.runs("quick", results=tmp_path)
    with pytest.raises(fedflat.UserError, match=r"snakemake --cores 2 quick_runs --config results=\S+ scale=smoke"):
        fedflat.runs("quick", results=tmp_path, overrides={"scale": "smoke"})
    with pytest.raises(fedflat.UserError, match="no finished run of quick"):
        fedflat.runs("quick", overrides={"training.rounds": 5}, **options)
    with pytest.raises(fedflat.UserError, match="unknown value of runs 'rh'; did you mean 'rho'"):
        fedflat.runs(where="rh=1", **options)
    with pytest.raises(fedflat.UserError, match=r"store' does not exist: no run is finished here"):
        fedflat.runs(results=tmp_path)
    with pytest.raises(fedflat.UserError, match="unknown analysis of experiment quick 'hesian'; did you mean"):
        fedflat.analysis_values("quick", "hesian", **options)
    with pytest.raises(fedflat.UserError, match="compute them with: snakemake --cores 2 quick_analysis_hessian"):
        fedflat.analysis_values("quick", "hessian", **options)
    with pytest.raises(fedflat.UserError, match="is not a run directory"):
        fedflat.load_run(tmp_path)
    with pytest.raises(fedflat.UserError, match="data has 2 inputs and 1 labels"):
        fedflat.hessian(LINEAR, (torch.zeros(2, 3), torch.zeros(1).long()))
    with pytest.raises(fedflat.UserError, match="unknown subset 'validation'"):
        fedflat.load_run(stored(folder / "results")).data("validation")


@pytest.mark.parametrize("path", [None, 3, b"x", "", "x" * 5000, "absent"], ids=lambda path: repr(path)[:20])
def test_a_run_is_in_a_run_directory(path):
    with pytest.raises(fedflat.UserError, match=r"path = .*the path of a file or folder|is not a run directory"):
        fedflat.Run(path)


@pytest.mark.parametrize("round_", [np.array([1, 2]), None, "1", 1.5, 0, True], ids=repr)
def test_the_round_of_a_model_is_a_whole_number(round_):
    result = fedflat.simulate("fedavg", LINEAR, [(X, Y)], rounds=2, local_steps=1, lr=0.1, keep_every_round=True)
    assert torch.equal(result.model_after(1.0).weight, result.model_after(np.int64(1)).weight)
    with pytest.raises(fedflat.UserError, match=r"^round_ = .* \(allowed: whole numbers from 1 to 1,000,000\)$"):
        result.model_after(round_)


def test_every_column_of_a_round_is_in_the_documentation():
    """Of a simulation with all that adds columns, and of a run."""
    history = fedflat.simulate(
        "fedsam",
        LINEAR,
        (X, Y),
        partition={"name": "iid", "clients": 4},
        participation={"active": 2, "availability": {"name": "bernoulli", "probability": 0.9}},
        work={"name": "uniform"},
        rounds=2,
        local_steps=2,
        lr=0.1,
        lr_schedule={"name": "cosine"},
        server_lr_schedule={"name": "cosine"},
        hyperparameters={"rho": 0.1, "schedules": {"rho": {"name": "cosine"}}},
        test=(X, Y),
    ).history
    assert {"available", "server_lr", "rho", "local_steps", "test_loss"} <= set(history), "else it tests little"
    section = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").partition("## Metrics of a round")[2]
    rows = [line.split("|")[1] for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {*history, *metrics_columns("test")} <= named


X, Y = torch.randn(8, 3), torch.arange(8) % 2
LINEAR = torch.nn.Linear(3, 2)
FROZEN = torch.nn.Linear(3, 2)
FROZEN.requires_grad_(False)
WRONG_DATA = [
    ((X, Y.float()), "client 1: labels have the dtype float32 (allowed: integers from 0)"),
    ((X, Y * 5), "client 1: labels are 0 to 5 (allowed: integers 0 to 1)"),
    ((X, -Y), "client 1: labels are -1 to 0 (allowed: integers 0 to 1)"),
    ((X, Y[:, None]), "client 1: labels have the shape [8, 1]"),
    ((X[:, :2], Y), "client 1: an input has the shape [2] (allowed: [3], as for client 0)"),
    ((X / 0, Y), "client 1: inputs contain NaN or infinite values"),
    ((X.numpy(), Y.numpy().astype(str)), "client 1: an array has the dtype <U"),
    (
        (X.tolist(), Y),
        "client 1: the data are list and Tensor (allowed: two tensors or NumPy arrays, inputs and labels; or",
    ),
]
WRONG_OPTIONS = [
    ({"model": torch.nn.Linear(3, 1)}, "the model maps inputs [2, 3] to scores [2, 1]"),
    ({"model": torch.nn.Linear(2, 2)}, "client 0: the model fails for inputs of the shape [2, 3]: RuntimeError: "),
    ({"model": torch.nn.Linear}, "(allowed: an instance of torch.nn.Module)"),
    ({"participants": [0, 1]}, "participants = [0, 1] (allowed: for each round a list of ids"),
    ({"clients": (X, Y)}, "all data together need a partition, such as partition={"),
    (
        {"clients": (X, Y), "partition": "iid"},
        "partition = 'iid' (allowed: a mapping of names to plain values, such as",
    ),
    ({"clients": (X, Y), "partition": {"name": "idd"}}, "unknown partition in simulate 'idd'; did you mean 'iid'"),
    ({"clients": (X, Y), "partition": {"name": "iid"}}, "simulate: iid: clients is missing"),
    ({"clients": (X, Y), "partition": {"name": "iid", "clients": 9}}, "9 clients for 8 training images"),
    ({"clients": (X, -Y), "partition": {"name": "iid", "clients": 2}}, "clients: labels are -1 to 0"),
    ({"clients": []}, "clients is empty"),
    ({"rounds": 3}, "leave out rounds and participation"),
    ({"participants": None}, "rounds is missing"),
    ({"participants": None, "rounds": 0}, "rounds = 0 (allowed: whole numbers from 1 to 1,000,000)"),
    ({"participants": None, "rounds": 2, "participation": 3}, "3 active clients per round, but only 2 are registered"),
    ({"participants": None, "rounds": 2, "participation": 0}, "participation = 0 (allowed: whole numbers"),
    ({"participants": None, "rounds": 2, "participation": {"active": 1, "x": 1}}, "unknown key of participation 'x'"),
    ({"local_steps": None}, "local training needs local_steps (mini-batches"),
    ({"local_epochs": 2}, "and not both"),
    ({"test": (X, Y.float())}, "test: labels have the dtype float32"),
    ({"test": (X[:, :2], Y)}, "test: an input has the shape [2] (allowed: [3]"),
    ({"test": X.numpy()}, "test: the data are ndarray"),
    ({"evaluate_every": 0}, "evaluate_every = 0"),
    ({"evaluate_every": None}, "evaluate_every = None (allowed: whole numbers from 1 to 1,000,000)"),
    ({"participants": [[0], [0.5, 1]]}, "participants = [[0], [0.5, 1]] (allowed: for each round a list of ids"),
    ({"participants": [[True]]}, "participants = [[True]] (allowed: for each round a list of ids"),
    ({"model": FROZEN}, "all parameters of the model are frozen (requires_grad=False)"),
    ({"on_round": 3}, "on_round = 3 (allowed: a function"),
    ({"hyperparameters": 3}, "hyperparameters = 3 (allowed: a mapping of names"),
    (
        {"participants": None, "rounds": 2, "participation": "full"},
        "participation = 'full' (allowed: whole numbers from 1",
    ),
    ({"participants": 10}, "participants = 10 (allowed: for each round a list of ids"),
    ({"local_steps": 2.5}, "local_steps = 2.5 (allowed: whole numbers from 1 to 1,000,000)"),
    *(({"clients": [(X, Y), wrong]}, message) for wrong, message in WRONG_DATA),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_OPTIONS, ids=[message[:30] for _, message in WRONG_OPTIONS])
def test_a_simulation_with_wrong_input_is_refused_in_one_line(wrong, message):
    options = {"model": LINEAR, "clients": [(X, Y), (X, Y)], "participants": [[0, 1]], "local_steps": 1, "lr": 0.1}
    with pytest.raises(fedflat.UserError, match=re.escape(message)) as error:
        fedflat.simulate("fedavg", **{**options, **wrong})
    assert "\n" not in str(error.value)


def test_labels_may_be_small_integers():
    options = {"participants": [[0]], "local_steps": 1, "lr": 0.1}
    long, short = (fedflat.simulate("fedavg", LINEAR, [(X, y)], **options) for y in (Y, Y.to(torch.uint8)))
    assert torch.equal(long.global_params[0], short.global_params[0])


@pytest.mark.parametrize(
    ("measure", "options", "message"),
    [
        (curvature.sharpness, {"rho": 0}, "rho = 0 (allowed: numbers above 0, up to 1e+12)"),
        (curvature.sharpness, {"steps": 0}, "steps = 0 (allowed: whole numbers"),
        (curvature.surface, {"extent": "wide"}, "extent = 'wide' (allowed: numbers above 0, up to 1e+12)"),
        (curvature.hessian, {"k": None}, "k = None (allowed: whole numbers from 1 to 1,000,000)"),
        (curvature.hessian, {"batch_size": None}, "batch_size = None (allowed: whole numbers from 1 to 2,147,483,647)"),
        (curvature.hessian, {"tolerance": -1}, "tolerance = -1 (allowed: numbers above 0)"),
        (curvature.surface, {"points": 4}, "4 grid points per axis (allowed: odd numbers from 3"),
        (curvature.surface, {"biases": "all"}, "biases = 'all' (allowed: zero, normalised)"),
    ],
)
def test_a_measure_with_wrong_options_is_refused(measure, options, message):
    with pytest.raises(fedflat.UserError, match=re.escape(message)):
        measure(LINEAR, (X, Y), **options)


def test_measures_take_numbers_of_numpy_but_no_model_that_is_all_frozen():
    radius = np.float32(0.25)
    assert fedflat.sharpness(LINEAR, (X, Y), rho=radius) == fedflat.sharpness(LINEAR, (X, Y), rho=0.25)
    with pytest.raises(fedflat.UserError, match=r"all parameters of the model are frozen"):
        fedflat.hessian(FROZEN, (X, Y), k=2)


@pytest.mark.parametrize(
    ("wrong", "message"), [((X, Y.float()), "data: labels have the dtype"), (X, "data: the data are")]
)
def test_a_hessian_on_wrong_data_is_refused(wrong, message):
    with pytest.raises(fedflat.UserError, match=message):
        fedflat.hessian(LINEAR, wrong, k=2)


def test_importing_fedflat_is_quick():
    code = "import fedflat, sys; print({'torch', 'pandas', 'numpy'} & set(sys.modules), fedflat.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "set()"


def test_only_figures_need_matplotlib():
    modules = (
        "fedflat.results",
        "fedflat.bench.training.train",
        "fedflat.analysis.report.tables",
        "fedflat.analysis.comparison.compare",
    )
    code = f"import sys, {', '.join(modules)}; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_name_is_there():
    assert all(hasattr(fedflat, name) for name in fedflat.__all__)
    assert dir(fedflat) == sorted(fedflat.__all__)
    assert isinstance(fedflat.runs.__doc__, str)
    with pytest.raises(AttributeError, match="module 'fedflat' has no attribute 'simulat'"):
        fedflat.simulat  # noqa: B018
