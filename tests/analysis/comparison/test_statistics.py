"""The statistics of a comparison: by hand where numbers are few, and what must hold for any scores."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedflat.analysis.comparison.statistics.costs import costs, pareto_front
from fedflat.analysis.comparison.statistics.flatness import correlations, flatness
from fedflat.analysis.comparison.statistics.profiles import cost_profile, gap_profile, share_within
from fedflat.analysis.comparison.statistics.ranking import mean_ranks, ranking
from fedflat.analysis.comparison.statistics.scores import LEAST_SEEDS, Scores
from fedflat.analysis.comparison.statistics.verdicts import (
    BETTER,
    NONE,
    POWER,
    UNCLEAR,
    WORSE,
    detectable_difference,
    verdicts,
    verdicts_by_setting,
)
from fedflat.analysis.measures.paired import sign_flip_corrected
from fedflat.bench.experiments.address import Setting
from tests.analysis.comparison.frames import runs

few = settings(max_examples=25, deadline=None)
values = st.floats(-50, 50).map(lambda v: round(v, 2))
OPPOSITE = {BETTER: WORSE, WORSE: BETTER, UNCLEAR: UNCLEAR, NONE: NONE}


def scores_of(array: np.ndarray, better: str = "higher") -> Scores:
    names = tuple(f"m{k}" for k in range(len(array)))
    places = tuple(Setting("d", f"p{k}", "all") for k in range(array.shape[1]))
    return Scores(names, places, tuple(range(array.shape[2])), array, np.zeros(array.shape, bool), better)


@st.composite
def scores(draw: st.DrawFn, least: int = LEAST_SEEDS) -> Scores:
    shape = (draw(st.integers(2, 5)), draw(st.integers(1, 3)), draw(st.integers(least, 8)))
    return scores_of(draw(arrays(float, shape, elements=values)))


def by_rival(table: pd.DataFrame) -> dict[str, dict[str, object]]:
    return table.set_index("rival").to_dict("index")


def test_verdicts_by_hand() -> None:
    steps = np.arange(6) / 10
    table = verdicts(scores_of(np.array([[80 + steps], [70 + 2 * steps], [90 + 2 * steps], [80 + steps[::-1]]])), "m0")
    assert table["rival"].tolist() == ["m2", "m3", "m1"]
    assert table["verdict"].tolist() == [WORSE, UNCLEAR, BETTER]
    assert table["difference"].tolist() == pytest.approx([-10.25, 0, 9.75])
    assert table[["wins", "losses"]].to_numpy().tolist() == [[0, 6], [3, 3], [6, 0]]
    # Only the seen signs and their opposite reach the largest |t|.
    assert table["p"].tolist() == [2 / 64, 1, 2 / 64]
    assert table["p_corrected"].tolist() == [2 / 64, 1, 2 / 64]


def test_single_settings_are_corrected_together() -> None:
    """A difference that is clear in one of two settings is compared with the largest |t| of both under the flips."""
    rng = np.random.default_rng(2)
    both = scores_of(rng.normal(size=(3, 2, 8)) + np.array([[[4.0], [0.0]], [[0.0], [0.0]], [[0.0], [0.0]]]))
    gains = both.gains[0] - both.gains[1:]
    together = sign_flip_corrected(gains.reshape(4, 8).T)
    found = verdicts_by_setting(both, "m0")
    for k, setting in enumerate(both.settings):
        alone, rows = verdicts(both.of_setting(setting), "m0"), by_rival(found[setting])
        assert [rows["m1"]["p_corrected"], rows["m2"]["p_corrected"]] == pytest.approx(list(together[k::2]))
        assert (found[setting]["p_corrected"] >= alone["p_corrected"]).all()
        assert found[setting]["p"].tolist() == alone["p"].tolist()
    [(only, table)] = verdicts_by_setting(both.of_setting(both.settings[0]), "m0").items()
    pd.testing.assert_frame_equal(table, verdicts(both.of_setting(only), "m0"))


def test_means_are_those_of_measured_runs() -> None:
    rows = runs(["a", "b", "c"], seeds=6)
    rows["gradients"], rows["lambda_max"] = 1.0, rows["method"].map({"a": 3.0, "b": 2.0, "c": 1.0})
    iid = rows["partition"] == "iid"
    rows.loc[(rows["method"] == "b") & (rows["seed"] == 0), "test_accuracy"] = math.nan
    rows.loc[(rows["method"] == "c") & iid, "test_accuracy"] = math.nan
    found = Scores.of(rows, "test_accuracy", "higher")
    means = rows.groupby(["method", "partition", "participation"])["test_accuracy"].mean().groupby("method")
    expected = means.mean().to_dict() | {"c": math.nan}  # in the other settings it would not be comparable
    for table in (costs(rows, found), flatness(rows, found)):
        assert table.set_index("method")["mean"].to_dict() == pytest.approx(expected, nan_ok=True)
        assert table["missing"].tolist() == [0, 4, 12]
    assert costs(rows, found).set_index("method").loc["c", "front_gradients"] == False  # noqa: E712
    assert correlations(flatness(rows, found))["methods"].tolist() == [2]
    against = verdicts(found, "b")
    assert against["rival"].tolist()[-1] == "c"
    assert against["mean"].tolist() == pytest.approx([expected["b"]] * 2)
    assert math.isnan(against["mean_rival"].iloc[-1])
    in_settings = ranking(found).set_index("method")
    values = rows.groupby(["method", "partition", "participation"], sort=False)["test_accuracy"].mean()
    assert in_settings.loc["b", "mean"].tolist() == pytest.approx(values["b"].tolist())
    assert in_settings.loc["b", "mean_low"].isna().all()
    assert in_settings.loc["a", "mean_low"].notna().all()


@few
@given(scores(), st.randoms())
def test_the_order_of_the_methods_changes_nothing(one: Scores, random) -> None:  # type: ignore[no-untyped-def]
    order = list(one.methods)
    random.shuffle(order)
    other = one.of_methods(order)
    left, right = by_rival(verdicts(one, "m0")), by_rival(verdicts(other, "m0"))
    assert left.keys() == right.keys()
    for rival, row in left.items():
        assert right[rival] == pytest.approx(row, nan_ok=True)
    for table in (ranking, gap_profile):
        first, second = (table(s).sort_values(["method"], kind="stable", ignore_index=True) for s in (one, other))
        pd.testing.assert_frame_equal(first, second)
    assert mean_ranks(one).ranks.to_dict() == pytest.approx(mean_ranks(other).ranks.to_dict())


@few
@given(scores())
def test_a_method_cannot_be_told_from_its_copy(one: Scores) -> None:
    both = scores_of(np.concatenate([one.values[:1], one.values]))
    copy = by_rival(verdicts(both, "m0"))["m1"]
    assert (copy["difference"], copy["p"], copy["p_corrected"], copy["verdict"]) == (0, 1, 1, UNCLEAR)
    assert (copy["wins"], copy["losses"]) == (0, 0)


@few
@given(scores())
def test_if_lower_is_better_the_verdicts_turn_round(one: Scores) -> None:
    higher, lower = (verdicts(scores_of(one.values, better), "m0") for better in ("higher", "lower"))
    for rival, row in by_rival(lower).items():
        other = by_rival(higher)[rival]
        assert row["verdict"] == OPPOSITE[other["verdict"]]
        assert (row["wins"], row["losses"]) == (other["losses"], other["wins"])
        for name in ("difference", "interval_low", "interval_high", "p", "p_corrected"):
            assert row[name] == pytest.approx(other[name], abs=1e-9)


@few
@given(scores())
def test_two_methods_see_each_other_from_both_sides(one: Scores) -> None:
    pair = one.of_methods(one.methods[:2])
    here, there = by_rival(verdicts(pair, "m0"))["m1"], by_rival(verdicts(pair, "m1"))["m0"]
    assert here["verdict"] == OPPOSITE[there["verdict"]]
    assert here["difference"] == pytest.approx(-there["difference"], abs=1e-9)
    assert (here["interval_low"], here["p"]) == pytest.approx((-there["interval_high"], there["p"]), abs=1e-9)


@few
@given(scores(least=2))
def test_a_verdict_needs_enough_seeds(one: Scores) -> None:
    table = verdicts(one, "m0")
    judged = len(one.seeds) >= LEAST_SEEDS
    assert ((table["verdict"] == NONE) == (not judged)).all()
    assert (table["p"].isna() == (not judged)).all()
    assert math.isnan(detectable_difference(one, "m0")) == (not judged)
    assert math.isinf(mean_ranks(one).critical) == (not judged)


@few
@given(scores())
def test_ranks_sum_to_a_constant_and_lie_in_their_intervals(one: Scores) -> None:
    count = len(one.methods)
    table = ranking(one)
    sums = table.groupby(["dataset", "partition", "participation"])["rank"].sum()
    assert sums.tolist() == pytest.approx([count * (count + 1) / 2] * len(one.settings))
    assert (table["rank_low"] <= table["rank"]).all()
    assert (table["rank"] <= table["rank_high"]).all()
    assert mean_ranks(one).ranks.sum() == pytest.approx(count * (count + 1) / 2)


def test_clear_ranks_have_narrow_intervals() -> None:
    noise = np.random.default_rng(0).normal(size=(3, 1, 10))
    table = ranking(scores_of(noise + np.array([[[90.0]], [[70.0]], [[50.0]]])))
    assert table[["rank", "rank_low", "rank_high"]].to_numpy().tolist() == [[1, 1, 1], [2, 2, 2], [3, 3, 3]]
    alike = ranking(scores_of(noise - noise.mean(axis=2, keepdims=True)))
    assert alike[["rank_low", "rank_high"]].to_numpy().tolist() == [[1, 3]] * 3


def test_the_critical_difference_is_tukeys() -> None:
    """By hand, for two methods and six seeds: ranks 1 and 2 in five seeds, 2 and 1 in one."""
    values = np.array([[[2.0, 2, 2, 2, 2, 1]], [[1.0, 1, 1, 1, 1, 2]]])
    found = mean_ranks(scores_of(values))
    assert found.ranks.tolist() == pytest.approx([7 / 6, 11 / 6])
    # Residuals: five of ±1/6, one of ±5/6, for both methods; five degrees of freedom; q = 3.635 for k = 2.
    s = math.sqrt(2 * (5 / 36 + 25 / 36) / 5)
    assert found.critical == pytest.approx(3.635 * s / math.sqrt(6), rel=1e-3)


@few
@given(scores())
def test_profiles_are_monotone_shares_and_one_method_is_the_best(one: Scores) -> None:
    profile = gap_profile(one)
    for _, steps in profile.groupby("method"):
        assert steps["distance"].is_monotonic_increasing
        assert steps["share"].is_monotonic_increasing
        assert steps["share"].iloc[-1] == pytest.approx(1)
    assert share_within(profile, one.methods, 0).sum() >= 1 - 1e-9
    assert (share_within(profile, one.methods, 1000) > 1 - 1e-9).all()


def test_a_cost_profile_by_hand() -> None:
    rows = runs(["a", "b", "c"], seeds=2)
    rows = rows[(rows["partition"] == "iid") & (rows["participation"] == "4-of-20")].sort_values(["method", "seed"])
    rows["last_round"], rows["gradients"] = 10, np.repeat([100.0, 300.0, 100.0], 2)
    rows["rounds_to_80"] = [4, math.nan, 2, 5, math.nan, math.nan]
    rounds = cost_profile(rows, ["a", "b", "c"], "rounds_to_80", "rounds")
    # Seed 0: 4 and 2 rounds; seed 1: only b reaches the target.
    assert list(rounds[["method", "distance", "share"]].itertuples(index=False, name=None)) == [
        ("a", 2, 0.5), ("b", 1, 1),
    ]  # fmt: skip
    gradients = cost_profile(rows, ["a", "b", "c"], "rounds_to_80", "gradients")
    # Seed 0: 40 and 60 gradients.
    assert share_within(gradients, ["a", "b", "c"], 1).tolist() == [0.5, 0.5, 0]
    assert share_within(gradients, ["a", "b", "c"], 1.5).tolist() == [0.5, 1, 0]


points = st.lists(st.tuples(values, values | st.just(math.nan)), min_size=1, max_size=8)


@few
@given(points)
def test_no_point_dominates_the_front_and_the_front_dominates_all_others(chosen: list[tuple[float, float]]) -> None:
    cost, gain = np.array(chosen).T
    front = pareto_front(cost, gain)
    known = np.isfinite(gain)

    def dominates(a: int, b: int) -> bool:
        at_least = cost[a] <= cost[b] and gain[a] >= gain[b]
        return bool(at_least and (cost[a] < cost[b] or gain[a] > gain[b]))

    for b in range(len(chosen)):
        beaten = any(dominates(a, b) for a in range(len(chosen)) if known[a])
        assert front[b] == (known[b] and not beaten)
    assert front.any() == known.any()


def test_costs_are_relative_to_fedavg_and_without_diverged_runs() -> None:
    rows = runs(["fedavg", "mine"])
    rows["gradients"] = np.where(rows["method"] == "mine", 200.0, 100.0)
    rows["communicated_mb"] = 5.0
    gone = rows.index[rows["method"] == "mine"][0]
    rows.loc[gone, ["outcome", "gradients", "test_accuracy"]] = ["diverged", 1.0, math.nan]
    table = costs(rows, Scores.of(rows, "test_accuracy", "higher")).set_index("method")
    assert table["gradients_relative"].to_dict() == {"fedavg": 1, "mine": 2}
    assert table["communicated_mb_relative"].to_dict() == {"fedavg": 1, "mine": 1}
    assert "seconds_relative" not in table


def test_costs_are_relative_in_the_settings_of_both() -> None:
    """Twice FedAvg's gradients stay twice as many if the settings with most clients have no finished run."""
    rows = runs(["fedavg", "mine", "other"], seeds=2)
    many = rows["participation"] == "10-of-20"
    rows["gradients"] = np.where(many, 500.0, 100.0) * rows["method"].map({"fedavg": 1, "mine": 2, "other": 3})
    table = costs(rows, Scores.of(rows, "test_accuracy", "higher")).set_index("method")
    assert table["gradients_relative"].to_dict() == {"fedavg": 1, "mine": 2, "other": 3}
    rows.loc[many & (rows["method"] == "mine"), ["outcome", "test_accuracy"]] = ["diverged", math.nan]
    table = costs(rows, Scores.of(rows, "test_accuracy", "higher")).set_index("method")
    assert table["gradients"].to_dict() == {"fedavg": 300, "mine": 200, "other": 900}
    assert table["gradients_relative"].to_dict() == {"fedavg": 1, "mine": 2, "other": 3}
    rows.loc[~many & (rows["method"] == "fedavg"), ["outcome", "test_accuracy"]] = ["diverged", math.nan]
    table = costs(rows, Scores.of(rows, "test_accuracy", "higher")).set_index("method")
    assert table["gradients_relative"].to_dict() == pytest.approx(
        {"fedavg": 1, "mine": math.nan, "other": 3}, nan_ok=True
    )
    rows.loc[rows["method"] == "fedavg", "outcome"] = "diverged"
    table = costs(rows, Scores.of(rows, "test_accuracy", "higher")).set_index("method")
    assert table["gradients_relative"].isna().all()
    assert table["front_gradients"].to_dict() == {"fedavg": False, "mine": False, "other": True}


def test_the_front_has_the_costs_that_are_drawn() -> None:
    """If a diverged run has a value, its method has a mean; its costs are still those of fewer settings."""
    rows = runs({"fedavg": 80.0, "mine": 70.0, "other": 60.0}, seeds=2, noise=0.0)
    many = rows["participation"] == "10-of-20"
    rows["gradients"] = np.where(many, 500.0, 100.0) * (1 + (rows["method"] == "mine"))
    rows.loc[many & (rows["method"] == "mine"), "outcome"] = "diverged"
    table = costs(rows, Scores.of(rows, "test_accuracy", "higher")).set_index("method")
    assert table.loc["mine", "gradients"] < table.loc["fedavg", "gradients"]
    assert table["front_gradients"].to_dict() == {"fedavg": True, "mine": False, "other": False}


def test_runs_without_a_value_count_as_the_worst_of_their_setting() -> None:
    rows = runs(["a", "b"])
    gone = rows.index[(rows["method"] == "b") & (rows["seed"] == 3)]
    rows.loc[gone, "test_accuracy"] = math.nan
    found = Scores.of(rows, "test_accuracy", "higher")
    assert found.missing.sum() == len(gone) == len(found.settings)
    for k, setting in enumerate(found.settings):
        there = rows[(rows["partition"] == setting.partition) & (rows["participation"] == setting.participation)]
        assert found.values[1, k, 3] == there["test_accuracy"].min()
        assert Scores.of(there, "test_accuracy", "lower").values[1, 0, 3] == there["test_accuracy"].max()
    assert verdicts(found, "a")["missing_rival"].tolist() == [len(gone)]


@pytest.mark.parametrize("seeds", [10, 20])
def test_the_detectable_difference_is_found_as_often_as_it_says(seeds: int) -> None:
    rng, found, draws = np.random.default_rng(5), 0, 150
    for _ in range(draws):
        identical = scores_of(rng.normal(size=(6, 1, seeds)))
        size = detectable_difference(scores_of(rng.normal(size=(6, 1, seeds))), "m0")
        identical.values[1] -= size
        found += by_rival(verdicts(identical, "m0"))["m1"]["verdict"] == BETTER
    assert found / draws == pytest.approx(POWER, abs=0.12)


def test_flatness_and_its_rank_correlation() -> None:
    rows = runs(["a", "b", "c", "d"])
    level = rows["method"].map({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0})
    rows["test_accuracy"], rows["lambda_max"], rows["lpf"] = 90 - level, level, math.nan
    rows.loc[rows["method"] == "d", "lambda_max"] = math.nan
    table = flatness(rows, Scores.of(rows, "test_accuracy", "higher"))
    assert "lpf" not in table
    assert table["lambda_max"].tolist() == pytest.approx([1, 2, 3, math.nan], nan_ok=True)
    [found] = correlations(table).to_dict("records")
    assert (found["measure"], found["tau"], found["methods"]) == ("lambda_max", -1, 3)


def test_settings_share_their_seeds() -> None:
    rows = runs(["a", "b"], seeds=7)
    found = Scores.of(rows, "test_accuracy", "higher")
    assert found.values.shape == (2, 4, 7)
    for (m, method), (k, setting), seed in itertools.product(
        enumerate(found.methods), enumerate(found.settings), found.seeds
    ):
        chosen = rows[(rows["method"] == method) & (rows["seed"] == seed)]
        chosen = chosen[(chosen["partition"] == setting.partition) & (chosen["participation"] == setting.participation)]
        assert found.values[m, k, seed] == chosen["test_accuracy"].item()
