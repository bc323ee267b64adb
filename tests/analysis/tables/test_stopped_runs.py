"""Runs that stopped early have costs until then, and no final values."""

import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.analysis.comparison.run_table import FinishedRun, require_all_rounds
from fedflat.analysis.figures.notes import stopped_note
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.convergence import FinalValue, final_values, stopped_runs
from fedflat.analysis.report.headline import headline
from fedflat.analysis.tables.formats import markdown
from fedflat.analysis.tables.table import fill
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from tests.analysis.conftest import HARD, metrics, tidy_in, write
from tests.analysis.tables.tables_by_hand import ACCURACY, TARGET, layout, reaching

CPU = torch.device("cpu")
LPF = {"header": "LPF", "metric": "lpf", "select": {"partition": "dirichlet-0.1"}}


def stopping(finals: list[float], rounds: dict[int, int]) -> pd.DataFrame:
    """Runs over four rounds, of which the seeds in `rounds` stopped at a round."""
    frame = metrics(finals)
    frame = frame[frame["round"] <= frame["seed"].map(rounds).fillna(4)]
    return frame.assign(stopped=(frame["round"] == frame["seed"].map(rounds)).astype(int))


@pytest.fixture
def stopped(tmp_path: Path, quick: Experiment) -> Tidy:
    """FedAvg stopped in all seeds, FedSAM in one of three; FedDyn has no such column."""
    frames = {
        "fedavg": stopping([80, 82, 84], {0: 2, 1: 2, 2: 3}),
        "fedsam": stopping([80, 82, 84], {1: 2}),
        "feddyn": metrics([80, 82, 84]),
    }
    for method, frame in frames.items():
        write(tmp_path, CellAddress(HARD, method), "metrics", frame)
        values = reaching((2, 1), (2, 1), (3, 1))
        if method == "fedsam":
            values = values[values["seed"] != 1]
        write(tmp_path, CellAddress(HARD, method), "convergence", values)
        write(
            tmp_path,
            CellAddress(HARD, method),
            "flatness",
            pd.DataFrame({"seed": [0], "metric": ["lpf"], "value": 1.0}),
        )
    return tidy_in(tmp_path, quick)


def test_columns_of_final_values_refuse_them(stopped: Tidy) -> None:
    """Also if other seeds of the cell have all rounds: their mean would be one over slow runs."""
    text = markdown(fill("t", layout(methods=["fedavg", "fedsam", "feddyn"], columns=[ACCURACY, LPF]), stopped))
    assert "| FedAvg | stopped at rounds 2 to 3 | stopped at rounds 2 to 3 |" in text
    assert "| FedSAM | stopped at round 2 | stopped at round 2 |" in text
    assert "| FedDyn | **82.00 ± 2.00** |" in text


def test_columns_of_targets_show_them(stopped: Tidy) -> None:
    """FedSAM's seed 1 stopped before it reached this target."""
    text = markdown(fill("t", layout(methods=["fedavg", "fedsam", "feddyn"], columns=[TARGET]), stopped))
    assert "| FedAvg | **2 ± 1** |" in text
    assert "| FedSAM | stopped at round 2 |" in text


def test_they_have_no_final_value(stopped: Tidy) -> None:
    frame = stopped.gather("metrics", [CellAddress(HARD, name) for name in ("fedavg", "fedsam", "feddyn")])
    values = final_values(frame, "test_accuracy", FinalValue(), "higher").set_index(["method", "seed"])["value"]
    assert values["fedavg"].isna().all()
    assert [math.isnan(value) for value in values["fedsam"]] == [False, True, False]
    assert values["feddyn"].tolist() == [80, 82, 84]
    assert stopped_runs(frame)[CellAddress(HARD, "fedavg").ids] == {0: 2, 1: 2, 2: 3}
    assert stopped_runs(frame.drop(columns="stopped")) == {}
    names = method_titles(stopped.experiment)
    assert stopped_note(frame, names) == "stopped early: FedAvg (3 runs), FedSAM (1 run)"
    assert stopped_note(frame[frame["method"] == "feddyn"], names) == ""


def test_the_headline_counts_them(stopped: Tidy) -> None:
    assert headline(stopped)[0] == "quick: 9 of 144 runs, 0 of them diverged, 4 stopped early"


def test_costs_until_a_target_are_those_of_whole_runs(tmp_path: Path) -> None:
    """Other analyses have no rows, and comparisons refuse the runs."""
    path, reached = "digits/dirichlet-0.1/4-of-20/fedavg", parse_analysis("convergence", {"targets": [30, 40, 99]})
    tables, log = {}, list[str]()
    for name, until in (("whole", None), ("part", 40)):
        changes = {"training.rounds": 12, "evaluation.every": 1, "evaluation.until": until}
        runs = train_cell("quick", load_experiment("quick", changes).cell(path), tmp_path / name, CPU, str)
        run_analysis(reached, tmp_path / name, tmp_path / f"{name}.csv", CPU, log.append)
        tables[name] = pd.read_csv(tmp_path / f"{name}.csv")
    costs = [
        table[(table["target"] <= 40) & (table["metric"] != "train_seconds_to_target")].reset_index()
        for table in tables.values()
    ]
    assert set(tables["part"]["target"]) == {30, 40}
    assert set(tables["whole"]["target"]) == {30, 40, 99}
    columns = ["seed", "metric", "target", "value", "reached"]
    pd.testing.assert_frame_equal(costs[0][columns], costs[1][columns])
    run_analysis(parse_analysis("cost", {}), tmp_path / "part", tmp_path / "cost.csv", CPU, log.append)
    assert pd.read_csv(tmp_path / "cost.csv").empty
    assert "stopped early: no rows" in log[-1]
    with pytest.raises(UserError, match="stopped early: a comparison needs runs of all rounds"):
        require_all_rounds([FinishedRun(CellAddress(HARD, "fedavg"), RunDirectory(runs / "seed-0"))])
