"""The frames of finished runs: their numbers are those of the files, whatever the experiment."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.comparison.run_table import (
    CURVE_IDS,
    TARGETS,
    curve_table,
    finished_runs,
    run_columns,
    run_table,
    target_column,
)
from fedflat.analysis.layouts.run_columns import ANALYSED, CURVE
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.engine.participation import active_clients
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from tests.analysis.comparison.tiny_grid import requested
from tests.analysis.conftest import LITTLE, analyse, run_of, train_all

SETTING = {"dataset": "digits", "partition": "dirichlet-0.1", "participation": "4-of-20"}
LONGER = LITTLE.replace("rounds: 1", "rounds: 6").replace("seeds: [0, 1, 2]", "seeds: [0, 1]") + (
    "evaluation: {every: 2}\nreport: mean_last_2\n"
)


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of six rounds with three evaluations, of which the last two are reported."""
    folder = tmp_path_factory.mktemp("longer")
    (folder / "little.yaml").write_text(LONGER, encoding="utf-8")
    train_all(folder / "little.yaml", folder / "results")
    return folder


def cell(folder: Path, method: str) -> Path:
    return run_of(folder / "results", "little", "/".join((*SETTING.values(), method))).parent


def of(table: pd.DataFrame, method: str, seed: int = 0) -> pd.DataFrame:
    chosen = table[(table["method"] == method) & (table["seed"] == seed)]
    return chosen[chosen["partition"] == SETTING["partition"]]


def test_a_run_has_the_numbers_of_its_files(longer: Path) -> None:
    table = run_table(requested(longer))
    assert list(table.columns) == run_columns(TARGETS)
    assert len(table) == 12
    [row] = of(table, "fedsam", 1).to_dict("records")
    run = RunDirectory(cell(longer, "fedsam") / "seed-1")
    metrics, times = run.metrics(), run.times()
    evaluated = metrics[metrics["round"].isin([4, 6])]
    for name in ("test_accuracy", "test_loss", "train_accuracy", "train_loss"):
        assert row[name] == pytest.approx(evaluated[name].mean(), rel=1e-12)
    assert row["generalisation_gap"] == row["train_accuracy"] - row["test_accuracy"]
    assert row["seconds"] == pytest.approx(times[["train_seconds", "evaluation_seconds"]].sum().sum())
    # FedSAM: each of 4 clients receives and sends a model of P numbers of 4 bytes; two gradients per image and step.
    assert row["communicated_mb"] == pytest.approx(6 * 4 * 2 * 4 * run.provenance["parameters"] / 1e6)
    active = [client for done in range(6) for client in active_clients(run.config.participation, 20, 1, done)]
    assert row["gradients"] == 2 * sum(len(run.split()[client]) for client in active)
    assert (row["identity"], row["title"], row["outcome"]) == (run.config.identity, "FedSAM", "finished")
    assert (row["rounds"], row["last_round"], row["local_epochs"], row["batch_size"]) == (6, 6, 1, 45)
    assert pd.isna(row["local_steps"])
    assert (row["variant"], row["trials"]) == ("untuned", 0)
    assert json.loads(row["hyperparameters"]) == {"rho": 0.05}
    assert json.loads(row["training"])["lr"] == 0.1
    assert json.loads(row["versions"]) == run.provenance["libraries"]
    for name in ("partition_hash", "data_hash", "device"):
        assert row[name] == run.provenance[name]


def test_rounds_to_targets_are_those_of_the_first_evaluation_that_reaches_them(longer: Path) -> None:
    (longer / "analyses.yaml").write_text("convergence: {targets: [1, 12.5]}\n", encoding="utf-8")
    table, curves = run_table(requested(longer)), curve_table(requested(longer))
    (longer / "analyses.yaml").unlink()
    assert [target_column(target) for target in (1.0, 12.5, *TARGETS)] == [
        c for c in table if c.startswith("rounds_to")
    ]
    for row in table[table["method"] != "wild"].to_dict("records"):
        curve = curves[(curves["identity"] == row["identity"])]
        for target in (1, 12.5, 90):
            reached = curve.loc[curve["test_accuracy"] >= target, "round"]
            expected = np.nan if reached.empty else reached.iloc[0]
            assert row[f"rounds_to_{target:g}"] == pytest.approx(expected, nan_ok=True)
    assert table["rounds_to_1"].min() == 2


def test_curves_have_the_evaluations_and_what_was_spent_until_then(longer: Path) -> None:
    curves, table = curve_table(requested(longer)), run_table(requested(longer))
    assert list(curves.columns) == [*CURVE_IDS, "round", *CURVE]
    curve = of(curves, "fedsam")
    metrics = RunDirectory(cell(longer, "fedsam") / "seed-0").metrics()
    assert curve["round"].tolist() == [2, 4, 6]
    for name in ("test_accuracy", "test_loss"):
        assert curve[name].tolist() == metrics[name].dropna().tolist()
    [row] = of(table, "fedsam").to_dict("records")
    for name in ("communicated_mb", "gradients"):
        assert curve[name].is_monotonic_increasing
        assert curve[name].iloc[-1] == row[name]
    assert curve["communicated_mb"].iloc[0] == pytest.approx(row["communicated_mb"] / 3)


def test_a_run_that_diverged_has_no_final_values(longer: Path) -> None:
    wild = of(run_table(requested(longer)), "wild").iloc[0]
    assert wild["outcome"] == "diverged"
    assert wild["last_round"] < wild["rounds"]
    assert np.isnan(wild[["test_accuracy", "test_loss", "generalisation_gap"]].astype(float)).all()
    assert wild["communicated_mb"] > 0


def test_analyses_fill_their_columns_where_they_are_computed(little: Path) -> None:
    options = {
        "hessian": {"eigenvalues": 5, "images": 20},
        "spectrum": {"probes": 2, "steps": 3, "images": 20},
        "flatness": {"draws": 2, "images": 20},
    }
    (little / "analyses.yaml").write_text(json.dumps(options), encoding="utf-8")
    path = "/".join((*SETTING.values(), "fedsam"))
    stored = {name: analyse(little, "little", path, name, chosen) for name, chosen in options.items()}
    table = run_table(requested(little))
    for seed in range(3):
        row = of(table, "fedsam", seed).iloc[0]
        for column in ("lambda_max", "trace", "lpf", "sharpness"):
            rows = stored[ANALYSED[column]]
            [value] = rows.loc[(rows["seed"] == seed) & (rows["metric"] == column), "value"]
            assert row[column] == pytest.approx(value, rel=1e-12)
    others = table[table["method"] != "fedsam"]
    assert others[["lambda_max", "trace", "lpf", "sharpness", "flatness_discrepancy", "drift"]].isna().all(axis=None)


def test_a_tuned_method_says_so_with_the_budget_of_its_search(longer: Path) -> None:
    """Methods of the same file that were not searched have untuned values."""
    lr = {"low": 0.01, "high": 0.5, "log": True}
    tuned = {"experiment": "little", "trials": 7, "seed": 1000, "validation": 0.2, "score": "best", "rungs": [0.5]}
    section = {**tuned, "ranges": {"fedsam": {"lr": lr}}, "set": {"training.rounds": 6, "grid.seeds": [0]}}
    file = longer / "tuned.yaml"
    found = {f"{partition}/4-of-20": {"training": {"lr": 0.1}} for partition in ("dirichlet-0.1", "iid")}
    text = LONGER.replace("little", "little_tuned").replace("rho: 0.05}", f"rho: 0.05}}, where: {json.dumps(found)}")
    file.write_text(f"{text}tuned: {json.dumps(section)}\n", encoding="utf-8")
    table = run_table(requested(longer, "tuned.yaml"))
    fedsam, others = of(table, "fedsam"), table[table["method"] != "fedsam"]
    assert set(zip(fedsam["variant"], fedsam["trials"], strict=True)) == {("tuned", 7)}
    assert set(zip(others["variant"], others["trials"], others["tuning"], strict=True)) == {("untuned", 0, "")}
    assert {json.dumps(json.loads(text)) for text in fedsam["tuning"]} == {
        json.dumps(
            {
                "judged": "best", "ranges": {"fedsam": {"lr": lr}}["fedsam"], "rungs": [0.5], "seed": 1000,
                "set": {"training.rounds": 6}, "validation": 0.2,
            },
            sort_keys=True,
        )
    }  # fmt: skip
    curves = curve_table(requested(longer, "tuned.yaml"))
    assert set(of(curves, "fedsam")["variant"]) == {"tuned"}
    assert set(of(curves, "fedavg")["variant"]) == {"untuned"}


def test_missing_runs_and_those_of_other_configurations_have_no_rows(little: Path) -> None:
    shutil.rmtree(cell(little, "fedsam") / "seed-1")
    assert len(run_table(requested(little))) == len(finished_runs(requested(little))) == 17
    empty = RequestedExperiment(str(little / "little.yaml"), little / "none")
    assert list(run_table(empty).columns) == run_columns(TARGETS)
    assert run_table(empty).empty and curve_table(empty).empty
    (little / "little.yaml").write_text(LITTLE.replace("rho: 0.05", "rho: 0.06"), encoding="utf-8")
    assert set(run_table(requested(little))["method"]) == {"fedavg", "wild"}, "runs with other values are others"


def test_runs_without_test_images_are_refused(tmp_path: Path) -> None:
    text = LITTLE.replace(", {name: iid, clients: 20}", "").partition("  fedsam:")[0]
    (tmp_path / "little.yaml").write_text(f"{text}evaluation: {{validation: 0.2}}\n", encoding="utf-8")
    train_all(tmp_path / "little.yaml", tmp_path / "results")
    with pytest.raises(UserError, match="needs evaluations on test images"):
        run_table(requested(tmp_path))
