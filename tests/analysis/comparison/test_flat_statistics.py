"""Statistics of a benchmark of flatness, against numbers computed by hand."""

import math

import pandas as pd
import pytest

from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.flat.pairs import CLOSE, NO, YES, pairs, state_of_pair
from fedflat.analysis.comparison.flat.units import unit_curves, units
from fedflat.analysis.comparison.statistics.verdicts import BETTER, NONE, UNCLEAR
from fedflat.analysis.comparison.tuning.search_budgets import by_protocol, check_budgets
from fedflat.analysis.layouts.run_columns import OF_FITTING
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


def test_tuning_seeds_of_one_protocol_are_one_budget() -> None:
    made = runs()
    check_budgets(made, "here")
    assert by_protocol(made).all()
    other = made.assign(tuning=made["tuning"].where(made["method"] != "fedsam", '{"protocol": "q", "seed": 1000}'))
    with pytest.raises(UserError, match="protocol: p and q"):
        check_budgets(other, "here")
    with pytest.raises(UserError, match="protocol: p and none"):
        check_budgets(made.assign(tuning=made["tuning"].where(made["method"] != "fedsam", '{"seed": 1000}')), "here")


def test_the_first_fitted_evaluation_counts() -> None:
    rounds, train = pd.Series([20, 40, 60]), pd.Series([98.9, 99.0 - 1e-12, 98.0])
    assert fit_round(rounds, train) == 40
    assert math.isnan(fit_round(rounds, pd.Series([98.9, math.nan, 98.0])))


def test_grids_without_images_for_validation_have_no_columns_of_fitting() -> None:
    assert not set(OF_FITTING) & set(load("quick", ROOT / "results" / "baselines" / "quick").runs)
