"""Curves, final values and rounds to target, against numbers worked out by hand."""

import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedflat.analysis.measures.convergence import (
    FinalValue,
    curves,
    diverged_seeds,
    final_values,
    first_reaching,
    neighbour_means,
)
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, metrics, tidy_in, write


@pytest.fixture
def gather(tmp_path: Path, quick: Experiment):  # type: ignore[no-untyped-def]
    def gathered(frame: pd.DataFrame) -> pd.DataFrame:
        cell = CellAddress(HARD, "fedavg")
        write(tmp_path, cell, "metrics", frame)
        return tidy_in(tmp_path, quick).gather("metrics", [cell])

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
    with pytest.raises(UserError, match="mean_last_n and std_last_n need n; the rules last and best do not allow n"):
        FinalValue(n=3)
    with pytest.raises(UserError, match="mean_last_n and std_last_n need n; the rules last and best do not allow n"):
        FinalValue(rule="mean_last_n")


# Evaluated every second round; the means of two are 45, 65, 65, 75.
RISING = pd.Series([30.0, 60.0, 70.0, 60.0, 90.0], index=[2, 4, 6, 8, 10])


@pytest.mark.parametrize(
    ("target", "window", "expected"),
    [
        (30, 1, 2),  # equality reaches
        (65, 1, 6),
        (65, 2, 6),
        (70, 2, 10),
        (75, 2, 10),
        (75.1, 2, None),
        (62, 5, 10),  # 310 / 5, once there are five
        (10, 6, None),  # there never are six
        (90.1, 1, None),
    ],
)
def test_first_round_at_a_target(target: float, window: int, expected: int | None) -> None:
    assert first_reaching(RISING, target, window) == expected


def test_rounding_does_not_delay_a_target() -> None:
    """The mean of 74.1 three times is 74.09999999999998 or so."""
    assert first_reaching(pd.Series([74.1] * 3, index=[1, 2, 3]), 74.1, 3) == 3


runs = st.lists(st.floats(0, 100), min_size=1, max_size=30).map(lambda v: pd.Series(v, index=range(1, len(v) + 1)))


@given(run=runs, target=st.floats(0, 100), window=st.integers(1, 5))
def test_a_mean_reaches_no_target_before_an_evaluation_does(run: pd.Series, target: float, window: int) -> None:
    single, smoothed = first_reaching(run, target), first_reaching(run, target, window)
    assert smoothed is None or (single is not None and single <= smoothed)
    higher = first_reaching(run, target + 1, window)
    assert higher is None or (smoothed is not None and smoothed <= higher)


def test_neighbour_means_of_each_run_alone() -> None:
    """Of three: 10, 20, 60 become 15, 30, 40 at the ends and in the middle; of two, evaluations k - 1 and k."""
    frame = pd.DataFrame(
        {
            **dict.fromkeys(("dataset", "partition", "participation", "method"), "x"),
            "seed": [0] * 4 + [1] * 3,
            "round": [1, 2, 3, 4, 2, 3, 4],
            "test_accuracy": [10, 20, None, 60, 100, 100, 100],
        }
    )
    three, two = (neighbour_means(frame, "test_accuracy", window)["test_accuracy"].tolist() for window in (3, 2))
    assert three[:2] + three[3:] == [15, 30, 40, 100, 100, 100]
    assert two[:2] + two[3:] == [10, 15, 40, 100, 100, 100]
    assert math.isnan(three[2])
    assert neighbour_means(frame, "test_accuracy", 1).equals(frame)
    assert neighbour_means(frame, "test_accuracy", 3, every=2)["round"].tolist() == [2, 4, 2, 4]


def test_the_deviation_of_evaluations_has_the_divisor_n() -> None:
    values = pd.Series([50.0, 0.0, 2.0])
    assert FinalValue(rule="std_last_n", n=2).of(values, "lower") == 1
    assert math.isnan(FinalValue(rule="std_last_n", n=1).of(values, "lower"))
