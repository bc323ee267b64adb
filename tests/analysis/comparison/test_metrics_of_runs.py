"""Metrics that an experiment names: in the rounds of its runs, a table, a curve, the table of runs and the page."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.explore import render_explorer
from fedflat.analysis.comparison.run_table import curve_table, finished_runs, run_table
from fedflat.analysis.layouts.run_columns import better, column_name
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import write_checked_csv
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import train_all
from tests.places import ROOT

NAMED = """
name: named
dataset: digits
model: cnn_gn
training: {rounds: 2, local_steps: 2, batch_size: 16, lr: 0.1}
evaluation: {training_images: 100, metrics: [macro_f1, worst_client]}
grid:
  partition: [{name: quantity_skew, clients: 4, alpha: 1.0}]
  participation: [{active: 2}]
  seeds: [0]
methods: {fedavg: {training: {aggregation: sqrt_samples}}, fedsam: {hyperparameters: {rho: 0.1}}}
"""
TABLE = """
title: T
caption: C.
methods: [fedavg, fedsam]
columns: [{header: F1, metric: test_macro_f1}, {header: worst, metric: test_worst_client}]
"""
CURVE = """
kind: convergence
title: T
caption: C.
metric: test_worst_client
methods: [fedavg, fedsam]
"""


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> RequestedExperiment:
    folder = tmp_path_factory.mktemp("named")
    for name, content in {"named": NAMED, "tables/t": TABLE, "figures/f": CURVE}.items():
        file = folder / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    train_all(folder / "named.yaml", folder / "results")
    return RequestedExperiment(str(folder / "named.yaml"), folder / "results")


def test_tables_and_curves_show_them(named: RequestedExperiment) -> None:
    last = [run.metrics.iloc[-1] for run in finished_runs(named)]
    table = Tables(named).filled("t")
    (block,) = table.entries
    assert [[entry.mean for entry in row] for row in block] == [
        [row["test_macro_f1"], row["test_worst_client"]] for row in last
    ]
    assert all(0 <= row["test_worst_client"] <= row["test_accuracy"] + 1e-9 for row in last)
    axes = Figures(named).render("f")
    assert all(file.is_file() for file in axes)


def test_tables_of_runs_and_the_page_show_them(named: RequestedExperiment) -> None:
    table, curves = run_table(named), curve_table(named)
    runs = finished_runs(named)
    assert table["test_macro_f1"].tolist() == [run.metrics["test_macro_f1"].iloc[-1] for run in runs]
    assert curves["test_worst_client"].tolist() == pd.concat([r.metrics for r in runs])["test_worst_client"].tolist()
    assert (better("test_macro_f1"), column_name("test_worst_client")) == (
        "higher",
        "test accuracy of the worst client",
    )
    page = render_explorer(named).read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert data["names"]["test_macro_f1"] == "Test macro-F1 (%)"
    assert data["metrics"] == ["test_macro_f1", "test_worst_client"]


def test_without_further_metrics_identities_stay(tmp_path: Path) -> None:
    plain = load_experiment("quick")
    cell = next(iter(plain.cells().values())).address.path
    none = load_experiment("quick", {"evaluation.metrics": None})
    some = load_experiment("quick", {"evaluation.metrics": ["macro_f1"]})
    identities = [one.cell(cell).runs[0].identity for one in (plain, none, some)]
    assert identities[0] == identities[1] != identities[2]


def test_a_wrong_metric_is_refused_before_a_run() -> None:
    with pytest.raises(UserError, match=r"metric 'macro_f2'.*macro_f1"):
        load_experiment("quick", {"evaluation.metrics": ["macro_f2"]}).cells()


def test_stored_runs_without_a_later_analysis_have_no_value_of_it(tmp_path: Path) -> None:
    stored = shutil.copytree(ResultPaths(ROOT / "results").baselines("bench1d"), tmp_path / "bench1d")
    rows = pd.read_csv(stored / "runs.csv", dtype=str, keep_default_na=False)
    write_checked_csv(stored / "runs.csv", rows.drop(columns=["lpf", "setting"]))
    earlier, now = load("bench1d", stored).runs, load("bench1d").runs
    assert list(earlier) == list(now)
    assert earlier["lpf"].isna().all()
    assert not now["lpf"].isna().all()
    pd.testing.assert_frame_equal(earlier.drop(columns="lpf"), now.drop(columns="lpf"))
