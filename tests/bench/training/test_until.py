"""Runs that stop at a target accuracy: until then, they are the same as runs of all rounds."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedflat.bench.experiments.experiment import Cell, load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.stop import Stop
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.quantity import Better
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from tests.bench.training.small_runs import check_resume
from tests.problems import train

CPU = torch.device("cpu")
CHANGES = {"training.rounds": 10, "evaluation.snapshot_every": 1, "training.lr_decay": 0.9}


def cell(method: str, **changes: object) -> Cell:
    return load_experiment("quick_all", {**CHANGES, **changes}).cell(f"digits/dirichlet-0.1/4-of-20/{method}")


def config(method: str, **changes: object) -> RunConfig:
    return cell(method, **changes).runs[0]


def early_target(run: RunDirectory) -> tuple[int, float]:
    """A round from the fourth to the last but one with a higher accuracy than all rounds before it; the accuracy."""
    accuracies = run.metrics().set_index("round")["test_accuracy"].dropna()
    records = accuracies[accuracies > accuracies.cummax().shift(fill_value=0)]
    return next((int(r), float(value)) for r, value in records.items() if 3 < int(r) < 10)


SWA: Mapping[str, object] = {"methods.fedasam.hyperparameters.swa": {"cycle": 2, "start": 2, "lr_end": 0.01}}


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedlesam_s", {"evaluation.every": 1}),
        ("fedasam", {"evaluation.every": 1, **SWA}),
        ("feddyn", {"evaluation.every": 2}),
    ],
)
def test_a_stopped_run_is_an_exact_prefix(method: str, changes: dict[str, object], tmp_path: Path) -> None:
    whole = train(config(method, **changes), tmp_path / "whole", CPU)
    round_, accuracy = early_target(whole)
    part = train(config(method, **changes, **{"evaluation.until": accuracy}), tmp_path / "part", CPU)
    assert part.stopped
    assert not whole.stopped
    assert part.provenance["outcome"] == "stopped"
    metrics = part.metrics()
    assert metrics.pop("stopped").tolist() == [0] * (round_ - 1) + [1]
    pd.testing.assert_frame_equal(metrics, whole.metrics().iloc[:round_], check_exact=True)
    a, b = part.snapshot(round_, CPU), whole.snapshot(round_, CPU)
    assert torch.equal(a.w, b.w)
    assert a.clients.keys() == b.clients.keys()
    assert torch.equal(part.final(CPU).w, b.server.get("w_swa", b.w))
    assert f"stopped after round {round_}" in (part.path / "run.log").read_text(encoding="utf-8")
    assert part.identity != whole.identity


@pytest.mark.parametrize(("until", "outcome"), [(100.0, "finished"), (0.5, "stopped")])
def test_a_run_that_misses_the_target_has_all_rounds(until: float, outcome: str, tmp_path: Path) -> None:
    run = train(config("fedavg", **{"evaluation.until": until}), tmp_path / "run", CPU)
    assert run.provenance["outcome"] == outcome
    assert len(run.metrics()) == (10 if outcome == "finished" else run.config.evaluation.every)


def test_a_target_that_the_last_round_reaches_stops_nothing(tmp_path: Path) -> None:
    changes = {"evaluation.every": 10, "evaluation.until": 0.5}
    run = train(config("fedavg", **changes), tmp_path / "run", CPU)
    assert run.provenance["outcome"] == "finished"
    assert run.metrics()["stopped"].tolist() == [0] * 10


def test_a_diverged_run_did_not_stop(tmp_path: Path) -> None:
    changes = {"training.lr": 1e20, "training.clip": None, "evaluation.until": 99.0}
    run = train(config("fedavg", **changes), tmp_path / "run", CPU)
    assert run.diverged
    assert not run.stopped
    assert run.metrics()["stopped"].sum() == 0


def test_seeds_stop_one_by_one(tmp_path: Path) -> None:
    """Each seed of a cell has the bits that it has alone."""
    together = cell("fedavg", **{"evaluation.every": 1, "evaluation.until": 60.0})
    folder = train_cell("quick_all", together, tmp_path / "results", CPU, str)
    ends, listed = set(), []
    for run in together.runs:
        alone = train(run, tmp_path / f"alone-{run.seed}", CPU)
        both = RunDirectory(folder / f"seed-{run.seed}")
        assert torch.equal(alone.final(CPU).w, both.final(CPU).w)
        pd.testing.assert_frame_equal(alone.metrics(), both.metrics(), check_exact=True)
        ends.add(len(both.metrics()))
        listed.append(both.metrics().assign(seed=run.seed))
    assert len(ends) > 1, "the seeds stop at different rounds"
    listed = pd.concat(listed)
    reached = (
        listed.assign(early=(listed["test_accuracy"] >= 60) & (listed["round"] < 10)).groupby("seed")["early"].max()
    )
    assert (listed.groupby("seed")["stopped"].sum() == 1).tolist() == reached.tolist()


def test_resuming_a_run_that_stops_is_bitwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(config("fedlesam_s", **{"evaluation.every": 1}), tmp_path / "whole", CPU)
    _, accuracy = early_target(whole)
    check_resume(
        "fedlesam_s", CPU, tmp_path, monkeypatch, **CHANGES, **{"evaluation.every": 1, "evaluation.until": accuracy}
    )
    assert RunDirectory(tmp_path / "undisturbed").stopped


def test_patience_and_other_metrics_end_a_run(tmp_path: Path) -> None:
    """Both rules as `Stop` states them, on the rounds of the run itself."""
    rule = {"metric": "macro_f1", "value": 101, "patience": 2, "change": 30}
    changes = {"evaluation.every": 1, "evaluation.metrics": ["macro_f1"], "evaluation.until": rule}
    run = train(config("fedavg", **changes), tmp_path / "run", CPU)
    values = run.metrics()["test_macro_f1"].tolist()
    best, since = values[0], 0
    for value in values[1:]:
        best, since = (value, 0) if value > best + 30 else (best, since + 1)
    assert run.stopped
    assert since == 2
    assert run.metrics()["stopped"].tolist() == [0] * (len(values) - 1) + [1]


@pytest.mark.parametrize(
    ("rule", "better", "values", "ends"),
    [
        ({"value": 1.5}, "lower", [3, 2, 1.5], True),
        ({"value": 1.5}, "higher", [3.0], True),
        ({"patience": 2}, "higher", [1, 3, 3, 2], True),
        ({"patience": 2}, "higher", [1, 3, 2, 4], False),
        ({"patience": 2}, "lower", [3, 2, 4, 5], True),
        ({"patience": 1, "change": 0.5}, "higher", [1, 1.4], True),
        ({"patience": 2}, "higher", [float("nan"), float("nan")], True),
    ],
)
def test_rules(rule: dict[str, float], better: Better, values: list[float], ends: bool) -> None:
    assert Stop.parse(rule).is_reached(values, better) is ends


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ({"metric": "los", "value": 1}, "did you mean 'loss'"),
        ({"metric": "loss"}, "needs a value, or patience"),
        ({"value": 50, "patients": 3}, "did you mean 'patience'"),
    ],
)
def test_wrong_rules_are_one_line(until: object, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        config("fedavg", **{"evaluation.until": until})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("until", [0, -1, 101, True])
def test_impossible_targets_are_refused(until: object) -> None:
    with pytest.raises(UserError, match="until"):
        config("fedavg", **{"evaluation.until": until})
