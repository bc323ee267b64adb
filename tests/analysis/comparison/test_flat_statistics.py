"""Statistics of a benchmark of flatness, against numbers computed by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.flat.ends import (
    HIGH,
    INSIDE,
    LOW,
    end_of,
    ends_reached,
    points_chosen,
    searched_values,
)
from fedflat.analysis.comparison.flat.gate import CLOSE, NO, YES, methods, state_of_pair
from fedflat.analysis.comparison.flat.itself import differences, differs, itself
from fedflat.analysis.comparison.flat.pairs import pairs
from fedflat.analysis.comparison.flat.regime import Regime
from fedflat.analysis.comparison.flat.search import winners
from fedflat.analysis.comparison.flat.speed import speed
from fedflat.analysis.comparison.flat.units import unit_curves, units
from fedflat.analysis.comparison.run_table import OF_FITTING
from fedflat.analysis.comparison.statistics.verdicts import BETTER, NONE, UNCLEAR
from fedflat.analysis.comparison.tuning.search_budgets import by_protocol, check_budgets
from fedflat.analysis.measures.fitting import fit_round
from fedflat.bench.input.errors import UserError
from tests.analysis.comparison.flat_frames import LEVELS, SEEDS, protocol, runs
from tests.places import ROOT


def test_a_unit_is_the_mean_of_a_tuning_seeds_runs() -> None:
    made = runs(offset=2.0)
    found = units(made)
    assert len(found) == len(LEVELS) * len(SEEDS)
    unit = found[(found["method"] == "fedsam") & (found["seed"] == 1002)].iloc[0]
    own = made[(made["method"] == "fedsam") & made["seed"].isin([4, 5])]
    assert unit["test_accuracy"] == pytest.approx(own["test_accuracy"].mean())
    assert unit["fit_round"] == 205
    assert unit["train_seeds"] == 2


def test_a_unit_is_fitted_if_each_of_its_runs_is() -> None:
    made = runs({"fedavg": 60.0}, SEEDS[:2])
    made.loc[1, "train_accuracy"] = 98.9
    assert units(made)["fitted"].tolist() == [False, True]


def test_a_unit_with_a_run_that_diverged_has_no_mean() -> None:
    made = runs({"fedavg": 60.0}, SEEDS[:2])
    made.loc[1, ["train_accuracy", "test_accuracy"]] = math.nan
    assert units(made)["test_accuracy"].isna().tolist() == [True, False]


def test_runs_without_a_tuning_seed_are_no_units() -> None:
    with pytest.raises(UserError, match="no unit"):
        units(runs().assign(tuning=""))


def test_curves_of_units_are_means_over_their_runs() -> None:
    made = runs({"fedavg": 60.0}, SEEDS[:1])
    ids = ["dataset", "partition", "participation", "method", "seed", "variant", "identity"]
    curves = pd.concat([made[ids].assign(round=number, test_accuracy=[10.0, 20.0]) for number in (20, 40)])
    found = unit_curves(made, curves)
    assert found[["seed", "round", "test_accuracy"]].to_numpy().tolist() == [[1000, 20, 15], [1000, 40, 15]]
    assert set(found["identity"]) == set(units(made)["identity"])


def test_an_unfitted_method_is_outside_the_ranking() -> None:
    table = methods(units(runs(train={"feddyn": 98.0})))
    assert table["method"].tolist()[-1] == "feddyn"
    assert table["state"].tolist() == [YES, YES, YES, NO]
    assert table["rank"].tolist()[:3] == [1, 2, 3]
    assert math.isnan(table["rank"].iloc[3])


def test_a_pair_counts_if_both_are_fitted_or_as_far_trained() -> None:
    assert state_of_pair(99.0, 99.2) == YES
    assert state_of_pair(98.1, 97.2) == CLOSE
    assert state_of_pair(100.0, 98.5) == NO


def test_pairs_are_paired_by_tuning_seed_and_judged_together() -> None:
    found = units(runs(noise=0.1))
    table = pairs(found, protocol()).set_index("method")
    assert table.loc["fedsam", "n"] == len(SEEDS)
    wide = found.pivot(index="seed", columns="method", values="test_accuracy")
    assert table.loc["fedsam", "difference"] == pytest.approx((wide["fedsam"] - wide["fedavg"]).mean())
    assert table.loc["fedsam", "verdict"] == BETTER
    assert table.loc["fedsam", "p_corrected"] == pytest.approx(2 / 64)  # all six signs agree
    assert table.loc["fedspeed", "verdict"] == UNCLEAR
    assert table.loc["fedsam", "lambda_max"] == pytest.approx(34)
    assert table.loc["fedsam", "lambda_max_base"] == pytest.approx(40)


def test_a_pair_with_too_few_tuning_seeds_has_numbers_and_no_verdict() -> None:
    table = pairs(units(runs(seeds=SEEDS[:2])), protocol())
    assert table["verdict"].tolist() == [NONE, NONE]
    assert table["difference"].notna().all()
    assert table["low"].isna().all()


def test_only_common_tuning_seeds_of_a_pair_count() -> None:
    made = runs()
    later = made[(made["method"] != "fedsam") | (made["seed"] >= 6)]
    table = pairs(units(later), protocol()).set_index("method")
    assert (table.loc["fedsam", "n"], table.loc["fedspeed", "n"]) == (3, 6)
    assert table.loc["fedsam", "verdict"] == NONE


def test_a_pair_that_is_not_fitted_has_no_verdict() -> None:
    table = pairs(units(runs(noise=0.1, train={"fedavg": 90.0})), protocol()).set_index("method")
    assert (table.loc["fedsam", "state"], table.loc["fedsam", "verdict"]) == (NO, NONE)


def test_rows_of_equal_compute_are_compared_with_the_base() -> None:
    twice = units(runs({"fedavg": 62.0, "feddyn": 71.0}, noise=0.0))
    table = pairs(units(runs(noise=0.0)), protocol(), {"k2": twice}).set_index("method")
    assert table.loc["fedsam", "difference_k2"] == pytest.approx(2)
    assert table.loc["fedspeed", "difference_k2"] == pytest.approx(1)


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


def trials() -> pd.DataFrame:
    place = {"dataset": "mnist1d-1000", "partition": "dirichlet_by_class-0.6", "participation": "5-of-20"}
    ends = '{"training.lr": [0.03, 2.0]}'
    rows = [
        ("fedsam", 0, '{"training.lr": 0.9, "hyperparameters.rho": 0}', "100.0", "60.0", 1, "taken"),
        ("fedsam", 1, '{"training.lr": 1.9, "hyperparameters.rho": 0.4}', "99.5", "70.0", 1, "trained"),
        ("fedsam", 2, '{"training.lr": 0.2, "hyperparameters.rho": 0.1}', "98.0", "80.0", 0, "trained"),
        ("fedavg", 0, '{"training.lr": 0.9}', "97.0", "60.0", 0, "trained"),
        ("fedavg", 1, '{"training.lr": 0.3}', "96.0", "61.0", 0, "trained"),
    ]
    columns = ["method", "number", "values", "train_accuracy", "validation_accuracy", "fitted", "outcome"]
    table = pd.DataFrame(rows, columns=columns).assign(**place, tuning_seed=1000, ends=ends)
    return table.assign(fit_mb=None, distance=None, gradients=10.0, cpu_seconds=36.0)


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


def test_tuning_seeds_of_one_protocol_are_one_budget() -> None:
    made = runs()
    check_budgets(made, "here")
    assert by_protocol(made).all()
    other = made.assign(tuning=made["tuning"].where(made["method"] != "fedsam", '{"protocol": "q", "seed": 1000}'))
    with pytest.raises(UserError, match="protocol: p and q"):
        check_budgets(other, "here")
    with pytest.raises(UserError, match="protocol: p and none"):
        check_budgets(made.assign(tuning=made["tuning"].where(made["method"] != "fedsam", '{"seed": 1000}')), "here")


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


def test_the_first_fitted_evaluation_counts() -> None:
    rounds, train = pd.Series([20, 40, 60]), pd.Series([98.9, 99.0 - 1e-12, 98.0])
    assert fit_round(rounds, train) == 40
    assert math.isnan(fit_round(rounds, pd.Series([98.9, math.nan, 98.0])))


def test_grids_without_images_for_validation_have_no_columns_of_fitting() -> None:
    assert not set(OF_FITTING) & set(load("quick", ROOT / "results" / "baselines" / "quick").runs)
