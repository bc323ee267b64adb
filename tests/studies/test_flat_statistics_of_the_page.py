"""Statistics of the page of a benchmark of flatness, against numbers computed by hand."""

import math

import numpy as np
import pytest

from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.flat.pairs import NO, YES
from fedflat.analysis.comparison.flat.units import units
from studies.flat.ends import (
    HIGH,
    INSIDE,
    LOW,
    end_of,
    ends_reached,
    points_chosen,
    searched_values,
)
from studies.flat.itself import differences, differs, itself
from studies.flat.ranking import methods
from studies.flat.regime import Regime
from studies.flat.speed import speed
from studies.flat.winners import winners
from tests.analysis.comparison.flat_frames import LEVELS, SEEDS, protocol, runs, trials
from tests.places import ROOT


def test_an_unfitted_method_is_outside_the_ranking() -> None:
    table = methods(units(runs(train={"feddyn": 98.0})))
    assert table["method"].tolist()[-1] == "feddyn"
    assert table["state"].tolist() == [YES, YES, YES, NO]
    assert table["rank"].tolist()[:3] == [1, 2, 3]
    assert math.isnan(table["rank"].iloc[3])


def test_methods_that_do_not_fit_are_last_in_the_ranking_by_speed() -> None:
    made = runs()
    made.loc[made["method"] == "fedavg", "fit_round"] = math.nan
    made.loc[made["method"] == "fedspeed", "fit_round"] = 100
    table = speed(units(made))
    assert (table["method"].iloc[0], table["method"].iloc[-1]) == ("fedspeed", "fedavg")
    assert table["reached"].tolist() == [6, 6, 6, 0]


def test_a_method_is_compared_with_itself_in_the_same_training_seeds() -> None:
    found = differences(runs(noise=0.0, offset=3.0), runs({"fedsam": 64.0}, noise=0.0, offset=3.0, after=1))
    assert found["method"].unique().tolist() == ["fedsam"]
    assert found["unit"].tolist() == list(SEEDS)
    assert found["a"].to_numpy() == pytest.approx(2.0)


def test_the_rule_is_rarely_wrong_on_exchangeable_draws_and_finds_large_gaps() -> None:
    rng = np.random.default_rng(0)
    d = rng.normal(size=(4000, 6))
    assert differs(d, 0.05).mean() <= 0.055  # 0.05 with three standard errors
    found = [differs(d + gap, 0.05).mean() for gap in (0.5, 1.0, 3.0)]
    assert found == sorted(found)
    assert found[-1] > 0.9


def test_rates_of_wrong_verdicts_come_with_intervals_and_power() -> None:
    found = differences(runs(noise=1.0), runs(noise=1.0, after=1))
    made = itself(found, protocol())
    rates = made.rates.set_index("gap")
    assert rates.loc[0.0, "methods"] == len(LEVELS)
    assert rates.loc[0.0, "rate"] < 0.1
    assert rates.loc[0.0, "low"] <= rates.loc[0.0, "rate"] <= rates.loc[0.0, "high"]
    assert rates["rate"].is_monotonic_increasing
    assert set(made.table["n"]) == {6}


def test_two_tuning_seeds_show_differences_from_itself_and_no_rate() -> None:
    found = differences(runs(seeds=SEEDS[:2]), runs(seeds=SEEDS[:2], after=1))
    made = itself(found, protocol())
    assert made.rates.empty
    assert made.table["differs"].isna().all()


def test_a_value_is_at_an_end_on_the_scale_of_its_draws() -> None:
    assert end_of(0.466, 0.01, 0.5, log=True) == HIGH
    assert end_of(0.44, 0.01, 0.5) == INSIDE
    assert end_of(0.011, 0.01, 0.5, log=True) == LOW
    assert end_of(2.0, 0.01, 0.5) == HIGH  # beyond


def test_the_best_fitted_trial_wins_and_without_one_the_best_trained() -> None:
    won = winners(trials()).set_index("method")["number"]
    assert won.to_dict() == {"fedsam": 1, "fedavg": 0}


def test_ends_of_the_first_and_of_the_widened_range_are_told_apart() -> None:
    found = ends_reached(winners(trials()), protocol()).set_index("method")
    assert found.loc["fedsam", ["start_end", "is_wider", "end", "at_bound"]].tolist() == [HIGH, True, HIGH, True]
    assert found.loc["fedavg", ["start_end", "end"]].tolist() == [HIGH, INSIDE]


def test_points_are_those_of_the_base_the_last_or_between() -> None:
    found = points_chosen(winners(trials()), protocol())
    assert found[["method", "point", "where"]].to_numpy().tolist() == [["fedsam", 0.4, "last"]]


def test_bench1d_compares_the_speed_of_optimisation() -> None:
    """The numbers of an independent check of the stored runs."""
    stored = load("bench1d", ROOT / "results" / "baselines" / "bench1d").runs
    regime = Regime.of(stored)
    tuned = regime.settings[regime.settings["variant"] == "tuned"]
    assert (round(tuned["r2"].min(), 3), round(tuned["r2"].max(), 3)) == (0.994, 0.998)
    assert [round(value, 2) for value in regime.deviations("tuned")] == [12.46, 0.83]
    assert (tuned["fitted"].sum(), tuned["nearly"].sum()) == (0, 36)
    values = searched_values(stored[stored["variant"] == "tuned"])
    cells = values.groupby(["partition", "participation", "method"])["end"].agg(lambda ends: (ends != "").any())
    assert (len(cells), cells.sum()) == (136, 60)
    assert values.loc[values["name"] == "lr", "value"].value_counts().iloc[:4].sum() == 120
