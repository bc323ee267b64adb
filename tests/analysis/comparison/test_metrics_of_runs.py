"""Metrics and analyses that an experiment names, FedFlat's and those of the docs' example.

Metrics are in the rounds of its runs, a table, a curve, the table of runs, the page and a comparison.
"""

import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fedflat
from fedflat.analysis.analyses.stored import wanted_files
from fedflat.analysis.comparison.baselines import Baselines, load
from fedflat.analysis.comparison.compare import compare, comparison_of
from fedflat.analysis.comparison.explore import render_explorer
from fedflat.analysis.comparison.report.text import as_text
from fedflat.analysis.comparison.run_table import curve_table, finished_runs, run_table
from fedflat.analysis.layouts.run_columns import RATED, better, column_name
from fedflat.analysis.provenance.export import export
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import write_checked_csv
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.current import first_differing_field
from tests.analysis.conftest import analysed, train_all
from tests.documents import PAGES
from tests.places import ROOT

TABLE = """
title: T
caption: C.
methods: [fedavg, fedsam]
columns: [{header: F1, metric: test_macro_f1}, {header: worst, metric: test_worst_two}]
"""
CURVE = """
kind: convergence
title: T
caption: C.
metric: test_top2
methods: [fedavg, fedsam]
"""


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> RequestedExperiment:
    folder = tmp_path_factory.mktemp("named")
    PAGES["docs/analyses.md"].write_files(folder)
    for name, content in {"tables/t": TABLE, "figures/f": CURVE}.items():
        file = folder / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    train_all(folder / "own.yaml", folder / "results")
    return RequestedExperiment(str(folder / "own.yaml"), folder / "results")


def test_tables_and_curves_show_them(named: RequestedExperiment) -> None:
    last = [run.metrics.iloc[-1] for run in finished_runs(named)]
    table = Tables(named).filled("t")
    (block,) = table.entries
    assert [[entry.mean for entry in row] for row in block] == [
        [row["test_macro_f1"], row["test_worst_two"]] for row in last
    ]
    assert all(row["test_accuracy"] < row["test_top2"] <= 100 for row in last)
    assert all(row["test_worst_two"] >= 0 for row in last)
    axes = Figures(named).render("f")
    assert all(file.is_file() for file in axes)


def test_tables_of_runs_and_the_page_show_them(named: RequestedExperiment) -> None:
    table, curves = run_table(named), curve_table(named)
    runs = finished_runs(named)
    assert table["test_macro_f1"].tolist() == [run.metrics["test_macro_f1"].iloc[-1] for run in runs]
    assert curves["test_top2"].tolist() == pd.concat([r.metrics for r in runs])["test_top2"].tolist()
    assert (better("test_macro_f1"), column_name("test_spread")) == (
        "higher",
        "test range of the clients' accuracies",
    )
    page = render_explorer(named).read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert data["names"]["test_macro_f1"] == "Test macro-F1 (%)"
    assert data["names"]["test_top2"] == "Test top-2 accuracy (%)"
    assert data["metrics"] == ["test_macro_f1", "test_top2", "test_worst_two", "test_spread"]
    frame = fedflat.metrics(named.name_or_file, results=named.results)
    assert frame["test_spread"].tolist() == pd.concat([r.metrics for r in runs])["test_spread"].tolist()
    clients = fedflat.client_accuracies(named.name_or_file, results=named.results)
    lowest = clients.sort_values("accuracy").groupby(["method", "round"]).head(2)
    assert lowest.groupby(["method", "round"])["accuracy"].mean().tolist() == frame["test_worst_two"].tolist()


def test_comparisons_show_them_for_own_runs(named: RequestedExperiment) -> None:
    """The method has them, the rival of an earlier version does not; such a rival cannot be compared by them."""
    table, curves = run_table(named), curve_table(named)
    is_own = table["method"] == "fedsam"
    further = [name for name in table if name.startswith("test_") and name not in RATED]
    rivals = Baselines(table[~is_own].assign(**dict.fromkeys(further, np.nan)), curves)
    found = comparison_of(
        table[is_own], curves, rivals, grid="g", variant="untuned", metric="test_accuracy", source="", baselines=None
    )
    text = as_text(found, False)
    assert re.search(r"^▸ FedSAM +\S+ +\d+\.\d+ ", text, re.MULTILINE)
    assert " ".join(text.split()).count("The stored runs have no test macro-F1, test top-2 accuracy, test acc") == 1
    with pytest.raises(UserError, match=r"--metric test_top2: the stored baselines of bench1d do not have it"):
        compare("fedsam", "bench1d", named.results, experiment=named.name_or_file, metric="test_top2")


def test_an_own_analysis_is_one_of_the_experiment(named: RequestedExperiment, tmp_path: Path) -> None:
    """Its values are in the docs' table, with those of the same analysis with another option, and in an archive."""
    assert {"weight_norm", "euclidean"} <= {*named.analysis_names}
    for path in named.experiment.paths():
        for name in ("weight_norm", "euclidean"):
            analysed(named.paths, "own", path, name, named.analyses[name])
    models = [run.directory.final(torch.device("cpu")).w for run in finished_runs(named)]
    (block,) = Tables(named).filled("own").entries
    assert [[entry.mean for entry in row[1:]] for row in block] == [
        pytest.approx([float(w.norm(1)), float(w.norm(2))]) for w in models
    ]
    frame = fedflat.analysis_values(named.name_or_file, "weight_norm", results=named.results)
    assert frame["definition"].unique().tolist() == ["1-norm"]
    export(["own_table_own"], tmp_path / "own.zip", named.results, {}, [named.name_or_file])
    with zipfile.ZipFile(tmp_path / "own.zip") as archive:
        source = Path(named.name_or_file).with_name("own_analysis.py").read_bytes()
        assert archive.read("experiment/own_analysis.py") == source
        copies = [name for name in archive.namelist() if re.search(r"/analyses/weight_norm-\w+\.py$", name)]
        assert [archive.read(name) for name in copies] == [source] * 4


def test_an_edited_analysis_is_computed_again(named: RequestedExperiment, tmp_path: Path) -> None:
    folder = Path(named.name_or_file).parent
    edited = Path(shutil.copytree(folder, tmp_path / "edited", ignore=shutil.ignore_patterns("results")))
    file, path = edited / "own_analysis.py", named.experiment.addresses[0]
    again = RequestedExperiment(str(edited / "own.yaml"), named.results)
    same = [wanted_files(named.paths, one.experiment, one.analyses["weight_norm"], path) for one in (named, again)]
    assert same[0] == same[1], "the place of the file does not matter"
    file.write_text(f"{file.read_text(encoding='utf-8')}\n# edited", encoding="utf-8")
    now = RequestedExperiment(str(edited / "own.yaml"), named.results)
    assert wanted_files(now.paths, now.experiment, now.analyses["weight_norm"], path) != same[0]


def test_an_edit_is_noticed_and_the_run_keeps_its_copy(named: RequestedExperiment, tmp_path: Path) -> None:
    file = Path(named.name_or_file).with_name("own_metrics.py")
    run = finished_runs(named)[0].directory
    copies = {copy.name: copy.read_bytes() for copy in run.path.glob("*.py")}
    assert copies == dict.fromkeys(["metric_Spread.py", "metric_top2.py", "metric_worst_two.py"], file.read_bytes())
    assert run.config.identity == named.experiment.cells()[finished_runs(named)[0].address.path].runs[0].identity
    edited = Path(shutil.copytree(file.parent, tmp_path / "edited", ignore=shutil.ignore_patterns("results")))
    (edited / file.name).write_text(f"{file.read_text(encoding='utf-8')}\n# edited", encoding="utf-8")
    now = load_experiment(str(edited / "own.yaml")).cells()[finished_runs(named)[0].address.path].runs[0]
    assert now.identity != run.config.identity
    assert re.match(
        rf"'{edited}.*has been edited; the run's copy is '{run.path}/", first_differing_field(run.config, now)
    )


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
