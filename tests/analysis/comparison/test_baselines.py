"""Stored baselines: every run of an experiment, with the numbers and the identity that it has, or a clear refusal."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from analysis.comparison.baselines import COLUMNS, STORED_METRICS, collect, load, run_rows, store
from analysis.comparison.run_table import protocol
from analysis.report.requested import RequestedExperiment
from bench.experiments.experiment import load_experiment
from bench.experiments.run_config import RunConfig
from bench.input.errors import UserError
from bench.training.run_directory import RunDirectory
from tests.analysis.conftest import LITTLE, train_all

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"


def requested(folder: Path) -> RequestedExperiment:
    return RequestedExperiment(str(folder / "little.yaml"), folder / "results")


def quick_run(cell: str = CELL, **changes: object) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return load_experiment("quick", keys).cell(cell).runs[0]


def test_every_run_and_metric_is_stored_as_the_run_has_it(little: Path) -> None:
    file = store(requested(little), "tiny")
    assert file == Path("results/baselines/tiny.csv")
    rows = load("tiny")
    assert list(rows.columns) == COLUMNS
    assert len(rows) == 2 * 3 * 3 * len(STORED_METRICS)
    run = RunDirectory(little / "results" / "runs" / "little" / CELL / "seed-1")
    of_run = rows[(rows["method"] == "fedsam") & (rows["partition"] == "dirichlet-0.1") & (rows["seed"] == 1)]
    last = run.metrics().iloc[-1]
    assert dict(zip(of_run["metric"], of_run["value"], strict=True)) == {name: last[name] for name in STORED_METRICS}
    row = of_run.iloc[0]
    assert (row["identity"], row["title"], row["outcome"]) == (run.config.identity, "FedSAM", "finished")
    assert (row["rounds"], row["last_round"], row["batch_size"]) == (1, 1, 45)
    assert json.loads(row["hyperparameters"]) == {"rho": 0.05}
    assert json.loads(row["training"])["lr"] == 0.1
    assert row["partition_hash"] == run.provenance["partition_hash"]
    assert row["data_hash"] == run.provenance["data_hash"]
    assert row["code"] == f"{run.provenance['code']['version']}+{run.provenance['code']['fingerprint']}"
    assert row["device"] == run.provenance["device"]


def test_runs_that_diverged_are_stored_without_values(little: Path) -> None:
    rows = collect(requested(little))
    wild = rows[rows["method"] == "wild"]
    assert len(wild) == 2 * 3 * len(STORED_METRICS)
    assert set(wild["outcome"]) == {"diverged"}
    assert wild["value"].isna().all()
    assert rows.loc[rows["method"] != "wild", "value"].notna().all()


def test_hashes_that_look_like_numbers_stay_text(little: Path) -> None:
    rows = collect(requested(little)).assign(identity="1234567890123456", data_hash="12e4567890123456")
    rows.to_csv("odd.csv", index=False)
    again = load("odd", Path("odd.csv"))
    assert set(again["identity"]) == {"1234567890123456"}
    assert set(again["data_hash"]) == {"12e4567890123456"}


def test_missing_runs_are_counted_with_the_command_that_produces_them(little: Path) -> None:
    store(requested(little), "tiny")
    before = Path("results/baselines/tiny.csv").read_bytes()
    shutil.rmtree(little / "results" / "runs" / "little" / CELL / "seed-1")
    shutil.rmtree(little / "results" / "runs" / "little" / "digits" / "iid" / "4-of-20" / "wild")
    with pytest.raises(UserError, match=r"4 of 18 runs of experiment little are missing") as caught:
        store(requested(little), "tiny")
    assert "snakemake --cores 2 little_runs --config" in str(caught.value)
    assert Path("results/baselines/tiny.csv").read_bytes() == before


def test_runs_of_another_configuration_are_not_stored(little: Path) -> None:
    (little / "little.yaml").write_text(LITTLE.replace("rho: 0.05", "rho: 0.06"), encoding="utf-8")
    with pytest.raises(UserError, match=r"another configuration \(method.hyperparameters.rho: 0.05 there, 0.06 here\)"):
        collect(requested(little))


def test_methods_that_do_not_share_the_protocol_are_not_stored_together(little: Path) -> None:
    text = LITTLE.replace(
        "wild: {name: fedavg, training: {lr: 1.0e+38, weight_decay: 1.0e+4}}",
        "wild: {name: fedavg, training: {local_steps: 2}}",
    )
    assert text != LITTLE
    (little / "little.yaml").write_text(text, encoding="utf-8")
    shutil.rmtree(little / "results")
    train_all(little / "little.yaml", little / "results")
    why = r"\(local_epochs: 1 in fedavg, none in wild\)"
    with pytest.raises(UserError, match=f"fedavg and wild cannot be compared .* {why}"):
        collect(requested(little))


@pytest.mark.parametrize(
    "changes",
    [
        {"training__lr": 0.2},
        {"training__lr_decay": 0.5},
        {"training__server_lr": 0.5},
        {"training__aggregation": "uniform"},
        {"training__clip": 3},
        {"training__weight_decay": 0.5},
        {"training__prox_split": True},
        {"evaluation__every": 7},
        {"methods__fedsam": {"hyperparameters": {"rho": 0.3}}},
        {"grid__seeds": [8]},
    ],
    ids=lambda c: next(iter(c)),
)
def test_a_methods_own_tuning_is_no_part_of_the_protocol(changes: dict[str, object]) -> None:
    assert quick_run(**changes).identity != quick_run().identity
    assert protocol(quick_run(**changes)) == protocol(quick_run())


@pytest.mark.parametrize(
    "changes",
    [
        {"training__rounds": 31},
        {"training__local_epochs": 1},
        {"training__local_steps": 10},
        {"training__batch_size": 8},
        {"training__augmentation": {"name": "cutout", "size": 2}},
    ],
    ids=lambda c: next(iter(c)),
)
def test_what_must_be_shared_is_part_of_the_protocol(changes: dict[str, object]) -> None:
    assert protocol(quick_run(**changes)) != protocol(quick_run())


def test_the_engine_is_no_part_of_the_protocol() -> None:
    """Its settings change rounding only, and new ones would make stored baselines incomparable."""
    assert protocol(quick_run(engine__backend="loop", engine__checkpoint_seconds=0)) == protocol(quick_run())


def test_settings_are_part_of_the_protocol_and_methods_are_not() -> None:
    assert protocol(quick_run(CELL.replace("0.1", "0.6"))) != protocol(quick_run())
    assert protocol(quick_run(CELL.replace("4-of", "10-of"))) != protocol(quick_run())
    assert protocol(quick_run(CELL.replace("fedsam", "fedgf"))) == protocol(quick_run())


def test_the_place_of_images_is_no_part_of_the_protocol() -> None:
    one, other = ({"dataset": {"name": "image_folder", "root": f"/{place}/photos"}} for place in ("a", "b"))
    cell = "photos/dirichlet-0.1/4-of-20/fedsam"
    assert protocol(quick_run(cell, **one)) == protocol(quick_run(cell, **other))
    assert protocol(quick_run(cell, **one)) != protocol(quick_run())


def test_baselines_that_are_not_there(little: Path) -> None:
    with pytest.raises(UserError, match=r"store them with: fedflat baselines EXPERIMENT --grid quick$"):
        load("quick")
    with pytest.raises(UserError, match=r"fedflat baselines EXPERIMENT --grid quick --out my.csv$"):
        load("quick", Path("my.csv"))
    store(requested(little), "tiny")
    with pytest.raises(UserError, match=r"unknown grid of stored baselines 'tny'; did you mean 'tiny'\? .*: tiny\)"):
        load("tny")
    with pytest.raises(UserError, match="lower-case letters"):
        store(requested(little), "../tiny")


def test_damaged_baselines_are_reported(little: Path) -> None:
    rows = pd.read_csv(store(requested(little), "tiny"))
    unchecked = rows.drop(columns="checksum")
    for damaged, message in [
        (rows.iloc[:-3], r"'odd.csv' is damaged \(it has \d+ of \d+ rows\): store them again with: fedflat baselines"),
        (unchecked.drop(columns="protocol"), r"'odd.csv' is damaged \(it lacks the column protocol"),
        (pd.concat([unchecked, unchecked.iloc[:1]]), "two rows have the same dataset and partition"),
        (unchecked.assign(value="much"), r"'odd.csv' is damaged \(value = 'much' is not a number"),
        (
            unchecked.assign(rounds=rows.index, protocol=rows.index),
            "cannot be compared in digits/dirichlet-0.1/4-of-20/",
        ),
    ]:
        damaged.to_csv("odd.csv", index=False)
        with pytest.raises(UserError, match=message):
            load("odd", Path("odd.csv"))


def test_a_run_has_one_row_per_metric(little: Path) -> None:
    run = RunDirectory(little / "results" / "runs" / "little" / CELL / "seed-0")
    rows = run_rows(run, {"dataset": "d", "partition": "p", "participation": "a", "method": "m"}, "M")
    assert rows["metric"].tolist() == list(STORED_METRICS)


def test_the_last_round_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "little.yaml"
    file.write_text(
        LITTLE.replace("rounds: 1", "rounds: 3").replace("seeds: [0, 1, 2]", "seeds: [0]"), encoding="utf-8"
    )
    train_all(file, tmp_path / "results")
    rows = collect(requested(tmp_path))
    metrics = RunDirectory(tmp_path / "results" / "runs" / "little" / CELL / "seed-0").metrics()
    of_run = rows[(rows["method"] == "fedsam") & (rows["partition"] == "dirichlet-0.1")].set_index("metric")
    assert of_run["value"].to_dict() == {name: metrics[name].iloc[2] for name in STORED_METRICS}
    assert set(of_run["last_round"]) == {3}
    wild = rows[rows["method"] == "wild"]
    assert (wild["last_round"] < wild["rounds"]).all()
