"""When the global model is evaluated: fewer evaluations change no model, and no mean over rounds that are evaluated."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedflat.analysis.measures.convergence import FinalValue, neighbour_means
from fedflat.analysis.planning.run_cost import FORWARD, seconds
from fedflat.bench.data.dataset import Batches
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import METRICS
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_setup import EVALUATION_BATCH, RunSetup
from tests.problems import train

CPU = torch.device("cpu")


def config(**changes: object) -> RunConfig:
    given = {"training.rounds": 12, "evaluation.snapshot_every": None, **changes}
    return load_experiment("quick", given).cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]


@pytest.mark.parametrize(
    ("given", "rounds", "evaluated"),
    [
        ({}, 3, [1, 2, 3]),
        ({"every": 4}, 10, [4, 8, 10]),
        ({"every": 100}, 3, [3]),
        ({"every": 4, "last": 3}, 10, [4, 8, 9, 10]),
        ({"every": 4, "last": 1}, 10, [4, 8, 10]),
        ({"every": 4, "last": 99}, 3, [1, 2, 3]),
        # k - ⌊3/2⌋ to k + ⌈3/2⌉ - 1 around 5 and 10; of the window around 15, round 14 does not count
        ({"every": 100, "around": {"every": 5, "rounds": 3}}, 14, [4, 5, 6, 9, 10, 11, 14]),
        ({"every": 100, "around": {"every": 5, "rounds": 4}}, 10, [3, 4, 5, 6, 8, 9, 10]),
        ({"every": 100, "around": {"every": 2, "rounds": 8}}, 10, list(range(1, 11))),
        ({"every": 100, "around": {"every": 20, "rounds": 8}}, 10, [10]),
    ],
)
def test_evaluated_rounds_by_hand(given: dict[str, object], rounds: int, evaluated: list[int]) -> None:
    assert sorted(Evaluation.parse(given).evaluated_rounds(rounds)) == evaluated


def test_windows_change_no_model_and_no_mean_over_their_rounds(tmp_path: Path) -> None:
    windows = {"evaluation.every": 6, "evaluation.last": 4, "evaluation.around": {"every": 6, "rounds": 3}}
    whole = train(config(**{"evaluation.every": 1}), tmp_path / "whole", CPU)
    fewer = train(config(**windows), tmp_path / "fewer", CPU)
    assert torch.equal(whole.final(CPU).w, fewer.final(CPU).w)
    full, part = (run.metrics().assign(seed=0, **dict.fromkeys(IDS, "same")) for run in (whole, fewer))
    evaluated = [5, 6, 7, 9, 10, 11, 12]
    assert part.loc[part["test_accuracy"].notna(), "round"].tolist() == evaluated
    chosen = full["round"].isin(evaluated)
    assert full.loc[chosen, "test_accuracy"].tolist() == part["test_accuracy"].dropna().tolist()
    last = FinalValue(rule="mean_last_n", n=4)
    assert last.of(full["test_accuracy"], "higher") == last.of(part["test_accuracy"].dropna(), "higher")
    means = [
        neighbour_means(frame, "test_accuracy", window=3, every=6)["test_accuracy"].iloc[0] for frame in (full, part)
    ]
    assert np.isfinite(means[0])
    assert means[0] == means[1]


def test_planned_time_counts_the_evaluations() -> None:
    """Of 12 rounds, 12, 2 and 5 are evaluated."""
    plans = ({"evaluation.every": 1}, {"evaluation.every": 6}, {"evaluation.every": 6, "evaluation.last": 4})
    costs = [seconds(config(**plan), lambda _: 1.0) for plan in plans]
    evaluation = (901 + 896) / 16 * FORWARD
    assert np.diff(costs) == pytest.approx([-10 * evaluation, 3 * evaluation])


def test_smoke_scale_evaluates_every_round(tmp_path: Path) -> None:
    file = tmp_path / "experiments.yaml"
    evaluation = "{every: 6, last: 4, around: {every: 6, rounds: 3}}"
    file.write_text(f"name: mine\nextends: quick\nevaluation: {evaluation}\n", encoding="utf-8")
    smoke = load_experiment(str(file), {"scale": "smoke"}).cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
    assert (smoke.evaluation.every, smoke.evaluation.last, smoke.evaluation.around) == (1, None, None)


def test_the_schedule_in_words() -> None:
    assert Evaluation(every=2).schedule == "every 2 rounds"
    given = Evaluation.parse({"every": 100, "last": 50, "around": {"every": 800, "rounds": 10}})
    assert given.schedule == (
        "every 100 rounds and in each of the last 50 rounds and in 10 rounds around each multiple of 800"
    )


@pytest.mark.parametrize("given", [{"last": 0}, {"around": {"every": 5}}, {"around": {"every": 0, "rounds": 1}}])
def test_wrong_windows_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"last|rounds|every"):
        Evaluation.parse(given)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_is_evaluated_in_its_own_precision(precision: str, tmp_path: Path) -> None:
    given = {"training.rounds": 1, "training.precision": precision, "engine.backend": "loop"}
    trained = config(**given, **{"engine.layout": "contiguous"})
    run = train(trained, tmp_path / "run", CPU)
    recorded = float(pd.read_csv(run.path / METRICS)["test_loss"].iloc[-1])
    for tried in ("fp32", "bf16"):
        setup = RunSetup.build(trained, CPU, precision=tried)
        loss = setup.objective.loss(run.final(CPU).w, Batches(setup.test, EVALUATION_BATCH["cpu"]))
        assert (loss == pytest.approx(recorded, rel=1e-9)) == (tried == precision)
