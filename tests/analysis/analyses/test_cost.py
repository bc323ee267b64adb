"""What runs cost, against numbers worked out by hand and against what real runs count."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.analysis.measures.cost import images_of_steps, per_round, spending
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from tests.analysis.conftest import run_of as listed

CPU = torch.device("cpu")
CELL = Path("results", "experiments", "little", "digits", "dirichlet-0.1", "4-of-20")


def run_of(little: Path, method: str, seed: int = 0) -> Path:
    return listed(little / "results", "little", "/".join((*CELL.parts[-3:], method)), seed)


# Two rounds of 4 clients, then one of 2; from the second on they download two models. SAM in the last round alone.
METRICS = pd.DataFrame(
    {
        "round": [1, 2, 3],
        "active": [4, 4, 2],
        "download": [1.0, 2.0, 2.0],
        "upload": [1.0, 1.0, 1.0],
        "client_state": [0.0, 1.0, 1.0],
        "server_state": [0.0, 0.0, 0.0],
        "gradients": [1.0, 1.0, 2.0],
        "test_accuracy": [None, 50.0, 70.0],
    }
)
TIMES = pd.DataFrame({"round": [1, 2, 3], "train_seconds": [3.0, 1.0, 2.0], "evaluation_seconds": [np.nan, 0.5, 0.25]})


def test_spending_adds_up() -> None:
    spent = spending(METRICS, TIMES, 250_000_000, {1: 100, 2: 80, 3: 30})
    assert spent["round"].tolist() == spent["rounds"].tolist() == [1, 2, 3]
    assert spent["transmissions"].tolist() == [2, 5, 8]
    assert spent["gigabytes"].tolist() == [8, 20, 26]  # a model is 1 GB
    assert spent["received_gigabytes"].tolist() == [4, 12, 16]
    assert spent["image_gradients"].tolist() == [100, 180, 240]
    assert spent["train_seconds"].tolist() == [3, 4, 6]


def test_a_round_costs() -> None:
    costs = per_round(METRICS, TIMES, 250_000_000)
    assert (costs["downloads_per_round"], costs["uploads_per_round"], costs["transmissions_per_round"]) == (2, 1, 3)
    assert (costs["gradients_per_step"], costs["client_state"], costs["server_state"]) == (1, 1, 0)
    assert costs["client_storage"] == 1 + costs["client_state"]
    assert costs["client_models"] == costs["downloads_per_round"] + costs["client_state"]
    assert costs["gigabytes"] == 26
    assert costs["gigabytes_per_round"] == pytest.approx(26 / 3)
    assert (costs["train_seconds_per_round"], costs["evaluation_seconds"]) == (2, 0.375)
    assert costs["seconds_per_round"] == 2.25
    never = per_round(METRICS, TIMES.assign(evaluation_seconds=np.nan), 1)
    assert np.isnan(never["evaluation_seconds"])
    assert never["seconds_per_round"] == 2


def analysed(name: str, folder: Path, *compared: Path, **options: object) -> pd.DataFrame:
    out = Path("answer.csv")
    run_analysis(parse_analysis(name, options), folder, out, CPU, str, compared)
    return pd.read_csv(out)


def of(table: pd.DataFrame, metric: str) -> list[float]:
    return table.loc[table["metric"] == metric, "value"].tolist()


def test_gradients_are_those_of_every_image_that_a_local_step_takes(little: Path) -> None:
    """One epoch of the active clients; SAM computes two gradients for every one of FedAvg."""
    folder = little / CELL
    never = {"targets": [100.0]}
    avg, sam = (analysed("convergence", folder / name, **never) for name in ("fedavg", "fedsam"))
    run = RunDirectory(run_of(little, "fedavg"))
    active = pd.read_csv(run_of(little, "fedavg") / "partition.csv.gz")
    images = of(avg, "image_gradients_to_target")[0]
    assert images_of_steps(run, [1]) == {1: images}
    counts = active.groupby("client").size()
    assert counts.nsmallest(4).sum() <= images <= counts.nlargest(4).sum()
    assert of(sam, "image_gradients_to_target") == [2 * value for value in of(avg, "image_gradients_to_target")]
    assert of(avg, "transmissions_to_target") == of(sam, "transmissions_to_target") == [2, 2, 2]
    parameters = run.provenance["parameters"]
    assert of(avg, "gigabytes_to_target") == pytest.approx([4 * 2 * 4 * parameters / 1e9] * 3)
    assert not avg["reached"].any()


def test_a_run_reaches_its_own_final_accuracy(little: Path) -> None:
    folder = little / CELL / "fedavg"
    table = analysed("convergence", folder, folder, targets=[], reference="fedavg")
    rounds = table[table["metric"] == "rounds_to_target"]
    assert rounds["value"].tolist() == [1, 1, 1]
    assert rounds["reached"].all()
    final = pd.concat([RunDirectory(run_of(little, "fedavg", seed)).metrics() for seed in range(3)])["test_accuracy"]
    assert rounds["target"].tolist() == pytest.approx(final.tolist())
    assert set(rounds["target_of"]) == {"fedavg"}


def test_a_diverged_run_spends_and_reaches_nothing(little: Path) -> None:
    """It has rows: what it cost is a fact. As a reference it sets no target."""
    wild = little / CELL / "wild"
    table = analysed("convergence", wild, wild, targets=[5.0], reference="wild")
    assert set(table["reached"]) == {0}
    assert table["target_of"].isna().all()
    assert of(table, "rounds_to_target") == [1, 1, 1]
    cost = analysed("cost", wild)
    assert of(cost, "gradients_per_step") == [1, 1, 1]
    assert min(of(cost, "peak_memory_mib")) > 0
    assert np.isnan(of(cost, "evaluation_seconds")).all()


def test_smoothing_is_a_second_set_of_rows(little: Path) -> None:
    table = analysed("convergence", little / CELL / "fedavg", targets=[1.0], window=2)
    rounds = table[table["metric"] == "rounds_to_target"]
    assert rounds[["smoothed", "reached"]].drop_duplicates().to_numpy().tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": []}, "the analysis convergence needs targets, a reference, or both"),
        ({"targets": [101.0]}, "targets.0 = 101.0"),
        ({"reference": "fedavg"}, r"needs --compare-with for runs of: fedavg \(given: none\)"),
    ],
)
def test_what_is_missing_is_one_line(options: dict[str, object], message: str, little: Path) -> None:
    with pytest.raises(UserError, match=message):
        analysed("convergence", little / CELL / "fedsam", **options)


def test_a_table_asks_for_targets_that_the_analysis_has(little: Path) -> None:
    """And for references that the experiment has."""
    (little / "tables").mkdir()
    table = little / "tables" / "t.yaml"
    place = "select: {partition: dirichlet-0.1, participation: 4-of-20}"
    column = f"{{header: rounds, metric: rounds_to_target, target: TARGET, {place}}}"
    layout = f"title: T\ncaption: C.\nmethods: [fedavg]\ncolumns: [{column}]\n"
    for target, options, message in (
        (
            "85",
            "{targets: [80]}",
            r"t\.yaml': target 85.0 is not a target of the analysis convergence \(allowed: 80\); analyses.yaml lists",
        ),
        ("fedavg", "{}", r"target fedavg is not a target of the analysis convergence \(allowed: 80\)"),
        (
            "fedavg, smoothed: true",
            "{reference: fedavg}",
            "smoothed: true needs a window above 1 in the analysis convergence",
        ),
        (
            "fedavgg",
            "{reference: fedavgg}",
            "unknown method or partition to compare .* with 'fedavgg'; did you mean",
        ),
    ):
        table.write_text(layout.replace("TARGET", target), encoding="utf-8")
        (little / "analyses.yaml").write_text(f"convergence: {options}\n", encoding="utf-8")
        with pytest.raises(UserError, match=message):
            Tables(RequestedExperiment("little.yaml", Path("results"))).inputs("t")
    table.write_text(layout.replace("TARGET", "fedavg, smoothed: true"), encoding="utf-8")
    (little / "analyses.yaml").write_text(
        "convergence: {targets: [80], reference: fedavg, window: 3}\n", encoding="utf-8"
    )
    assert Tables(RequestedExperiment("little.yaml", Path("results"))).inputs("t")
    table.write_text(layout.replace("TARGET", "[fedprox, fedavg]"), encoding="utf-8")
    (little / "analyses.yaml").write_text("convergence: {reference: [fedprox, fedavg]}\n", encoding="utf-8")
    assert Tables(RequestedExperiment("little.yaml", Path("results"))).inputs("t")
