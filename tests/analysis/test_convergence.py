"""Curves, final values and rounds to target, against numbers worked out by hand."""

import math
from pathlib import Path

import pandas as pd
import pytest

from analysis.convergence import FinalValue, curves, diverged_seeds, final_values
from analysis.tidy import CellKey, Tidy
from bench.errors import UserError
from bench.experiments import Experiment
from tests.analysis.conftest import HARD, metrics, write


@pytest.fixture
def gather(tmp_path: Path, quick: Experiment):  # type: ignore[no-untyped-def]
    def gathered(frame: pd.DataFrame) -> pd.DataFrame:
        cell = CellKey(HARD, "fedavg")
        write(tmp_path, cell, "metrics", frame)
        return Tidy(tmp_path, quick).gather("metrics", [cell])

    return gathered


def test_curve_is_mean_and_sample_std_of_evaluated_rounds(gather) -> None:  # type: ignore[no-untyped-def]
    # Finals 80 and 90 over 4 rounds: round 2 holds 40 and 45, round 4 holds 80 and 90.
    curve = curves(gather(metrics([80, 90])), "test_accuracy")
    assert curve["round"].tolist() == [2, 4]
    assert curve["mean"].tolist() == [42.5, 85.0]
    assert curve["std"].tolist() == pytest.approx([5 / math.sqrt(2), 10 / math.sqrt(2)])


def test_curve_ends_where_the_first_seed_diverges(gather) -> None:  # type: ignore[no-untyped-def]
    curve = curves(gather(metrics([80, 90, 85], diverged={1: 3})), "test_accuracy")
    assert curve["round"].tolist() == [2]
    assert curve["mean"].tolist() == [42.5]


def test_curve_of_one_seed_has_no_spread(gather) -> None:  # type: ignore[no-untyped-def]
    assert curves(gather(metrics([80])), "test_accuracy")["std"].isna().all()


def test_diverged_seeds_are_counted(gather) -> None:  # type: ignore[no-untyped-def]
    row = diverged_seeds(gather(metrics([80, 90, 85], diverged={0: 1, 1: 3}))).iloc[0]
    assert (row["seeds"], row["diverged"]) == (3, 2)


@pytest.mark.parametrize(
    ("final", "better", "expected"),
    [
        (FinalValue(), "higher", 60.0),
        (FinalValue(rule="mean_last_n", n=2), "higher", 75.0),
        (FinalValue(rule="mean_last_n", n=9), "higher", 60.0),
        (FinalValue(rule="best"), "higher", 90.0),
        (FinalValue(rule="best"), "lower", 30.0),
    ],
)
def test_final_value_rules(gather, final: FinalValue, better, expected: float) -> None:  # type: ignore[no-untyped-def]
    frame = metrics([80], rounds=6)
    frame.loc[frame["test_accuracy"].notna(), "test_accuracy"] = [30.0, 90.0, 60.0]
    assert final_values(gather(frame), "test_accuracy", final, better)["value"].tolist() == [expected]


def test_a_diverged_run_has_no_final_value_under_any_rule(gather) -> None:  # type: ignore[no-untyped-def]
    frame = gather(metrics([80, 90], rounds=6, diverged={0: 5}))
    values = final_values(frame, "test_accuracy", FinalValue(rule="best"), "higher")
    assert values["diverged"].tolist() == [True, False]
    assert math.isnan(values["value"][0])
    assert values["value"][1] == 90


def test_last_is_the_default_and_best_warns() -> None:
    assert FinalValue().rule == "last"
    assert "optimistic" in FinalValue(rule="best").description
    with pytest.raises(UserError, match="n goes with"):
        FinalValue(n=3)
    with pytest.raises(UserError, match="n goes with"):
        FinalValue(rule="mean_last_n")
