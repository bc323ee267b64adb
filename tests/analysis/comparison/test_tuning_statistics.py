"""What tuning changes, by hand: gains and ranks of runs, scores and ranks of trials."""

import itertools

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.comparison.tuning import tables
from fedflat.analysis.comparison.tuning.budget import RanksByBudget
from fedflat.analysis.comparison.tuning.early_stopping import EarlyStopping
from fedflat.analysis.comparison.tuning.gain import Gain
from fedflat.analysis.comparison.tuning.report import gain_words, stopping_words
from fedflat.analysis.measures.paired import interval
from fedflat.bench.experiments.address import Setting
from fedflat.bench.input.errors import UserError
from tests.analysis.comparison.frames import SETTINGS, runs

GAINS = {"much": 10.0, "none": 0.0, "little": 3.0}
FIRST, SECOND = ("dirichlet-0.1", "iid")


def both(seeds: int = 8) -> pd.DataFrame:
    """Three methods with untuned accuracies of 70, 75 and 80 %, and their gains; the noise of a seed is shared."""
    untuned = runs({"much": 70.0, "none": 75.0, "little": 80.0}, seeds, noise=0.3)
    added = untuned["method"].map(GAINS) + 0.1 * untuned["seed"] * (untuned["method"] != "none")
    tuned = untuned.assign(variant="tuned", trials=16, test_accuracy=untuned["test_accuracy"] + added)
    changed = tuned["identity"].where(tuned["method"] == "none", tuned["identity"] + " tuned")
    return pd.concat([untuned, tuned.assign(identity=changed)], ignore_index=True)


def test_gains_are_paired_and_ranks_are_those_of_each_variant() -> None:
    gain = Gain.of(both(), "the runs")
    table = gain.of_setting().set_index("method")
    assert list(table.index) == ["little", "much", "none"], "the best tuned one first"
    by_seed = 10 + 0.1 * np.arange(8)
    assert table.loc["much", "gain"] == pytest.approx(by_seed.mean())
    assert tuple(table.loc["much", ["gain_low", "gain_high"]]) == pytest.approx(interval(by_seed))
    assert table.loc["none", "gain"] == 0
    assert list(table["rank_untuned"]) == [1, 3, 2]
    assert list(table["rank_tuned"]) == [1, 2, 3]
    assert list(table["verdict"]) == ["better", "better", "cannot tell"]
    assert gain.tau() == pytest.approx(1 / 3), "one of three pairs changes its order"
    assert (gain.cells, gain.kept, gain.trials, gain.seeds) == (12, 4, (16,), 8)
    for partition, participation in SETTINGS:
        one = gain.of_setting(Setting("digits", partition, participation)).set_index("method")
        assert one.loc["much", "gain"] == pytest.approx(by_seed.mean())


def test_a_diverged_run_counts_as_the_worst_of_both_variants() -> None:
    rows = both()
    lost = (rows["method"] == "much") & (rows["variant"] == "untuned") & (rows["seed"] == 0)
    rows.loc[lost, "test_accuracy"] = np.nan
    gain = Gain.of(rows, "the runs")
    table = gain.of_setting().set_index("method")
    untuned = rows[(rows["method"] == "much") & (rows["variant"] == "untuned")]["test_accuracy"]
    assert table.loc["much", "mean_untuned"] == pytest.approx(untuned.mean()), "of the measured runs"
    assert np.isnan(table.loc["much", "mean_low_untuned"])
    shown, *_ = (found.rows for found in tables.of_gain(gain))
    assert next(row[1] for row in shown if row[0] == "MUCH") == f"{untuned.mean():.1f} (4 of 32 diverged)"
    assert table.loc["much", "missing_untuned"] == 4
    assert table.loc["much", "missing_tuned"] == 0
    assert table.loc["much", "gain"] == pytest.approx(10.35, abs=0.5)


def test_words_leave_out_gains_without_both_means() -> None:
    """Each lost run counts as the worst of its setting: a difference from it is not the gain of a method."""
    rows = both()
    lost = (rows["method"] == "much") & (rows["variant"] == "untuned") & (rows["partition"] == "iid")
    first, second, *_ = gain_words(Gain.of(rows, "the runs"))
    assert first.startswith("Tuning with 16 trials changes the test accuracy by +4.6 points on average over 3 methods")
    assert first.endswith("from +0.0 (NONE) to +10.3 (MUCH).")
    assert second.startswith("Tuned against untuned values: ")
    rows.loc[lost, "test_accuracy"] = np.nan
    first, second, *_ = gain_words(Gain.of(rows, "the runs"))
    assert first == (
        "Tuning with 16 trials changes the test accuracy by +1.7 points on average over 2 methods, from +0.0 (NONE) to "
        "+3.3 (LITTLE)."
    )
    assert second == "Methods without a gain, because all untuned or all tuned runs of a setting diverged: 1."
    rows.loc[(rows["variant"] == "tuned") & (rows["partition"] == "iid"), "test_accuracy"] = np.nan
    assert next(gain_words(Gain.of(rows, "the runs"))).endswith(" of a setting diverged: 3.")


def test_one_method_has_no_rankings() -> None:
    rows = both()
    gain = Gain.of(rows[rows["method"] == "much"], "the runs")
    assert np.isnan(gain.tau())
    words = list(gain_words(gain))
    assert " on average over 1 method, " in words[0]
    assert not any("Rankings" in line for line in words)


def test_single_settings_have_their_own_p_values() -> None:
    """Two methods gain in one setting each, the third in none: only these two verdicts are clear."""
    rng, rows = np.random.default_rng(1), both().query("variant == 'untuned'")
    clear = {"much": SETTINGS[1], "none": SETTINGS[2], "little": None}
    places = list(zip(rows["partition"], rows["participation"], strict=True))
    is_clear = np.array([clear[method] == place for method, place in zip(rows["method"], places, strict=True)])
    added = 5.0 * is_clear + rng.normal(size=len(rows))
    tuned = rows.assign(variant="tuned", trials=16, test_accuracy=rows["test_accuracy"] + added)
    gain = Gain.of(pd.concat([rows, tuned.assign(identity=tuned["identity"] + " tuned")]), "the runs")
    for place in SETTINGS:
        table = gain.of_setting(Setting("digits", *place)).set_index("method")
        for method, of_method in clear.items():
            is_found = of_method == place
            assert (table.loc[method, "p_corrected"] < 0.05) == is_found, (method, place)
            assert table.loc[method, "verdict"] == ("better" if is_found else "cannot tell")


def test_few_seeds_give_no_verdict() -> None:
    table = Gain.of(both(seeds=3), "the runs").of_setting()
    assert set(table["verdict"]) == {""}
    assert np.isfinite(table["gain_low"]).all()
    assert Gain.of(both(seeds=1), "the runs").of_setting()["gain_low"].isna().all()


def test_methods_without_all_runs_are_left_out_by_name() -> None:
    rows = both()
    part = rows[~((rows["method"] == "none") & (rows["variant"] == "tuned") & (rows["seed"] == 2))]
    gain = Gain.of(part, "the runs")
    assert set(gain.table["method"]) == {"much", "little"}
    assert "they lack untuned or tuned runs of 32 settings and seeds: none" in gain.notes[0]
    one = Gain.of(rows[rows["method"] == "much"], "the runs")
    assert list(one.of_setting()["rank_tuned"]) == [1]
    tuned_in_one = rows[(rows["variant"] == "untuned") | (rows["participation"] == "4-of-20")]
    assert len(Gain.of(tuned_in_one, "the runs").settings) == 2


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("variant == 'untuned'", "no tuned runs in the runs"),
        ("variant == 'tuned'", "no untuned runs in the runs"),
        ("(variant == 'tuned') == (seed < 4)", "no method has untuned and tuned runs of the same setting and seed"),
        (
            "variant == 'untuned' or (partition == 'iid') == (seed < 4)",
            "no method has untuned and tuned runs of the same seeds in all settings",
        ),
    ],
)
def test_runs_without_pairs_are_one_line(query: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Gain.of(both().query(query), "the runs")


def trials(scores: dict[str, list[float | None]], partition: str = FIRST) -> pd.DataFrame:
    """Trials of one setting, as they are stored."""
    rows = [(method, number, score) for method, found in scores.items() for number, score in enumerate(found)]
    table = pd.DataFrame(rows, columns=["method", "trial", "score"]).astype({"score": float})
    return table.assign(
        experiment="mine", dataset="digits", partition=partition, participation="4-of-20",
        title=table["method"].str.upper(), rounds=4, seed=1000, validation=0.2, scored="validation accuracy",
    )  # fmt: skip


def test_two_trials_by_hand() -> None:
    """b wins untuned, a after two trials; there is only one order."""
    budget = RanksByBudget.of(trials({"a": [50, 60], "b": [55, 52], "c": [40, 58]}))
    curves = budget.curves.set_index(["method", "trials"])
    assert list(curves["score"]) == [50, 60, 55, 55, 40, 58]
    assert list(curves["gain"]) == [0, 10, 0, 0, 0, 18]
    assert list(curves["rank"]) == [2, 1, 1, 3, 3, 2]
    assert list(curves["wins"]) == [0, 1, 1, 0, 0, 0]
    assert (curves["score_low"] == curves["score_high"]).all()
    assert budget.best_first == ["a", "c", "b"]
    stability = budget.stability.set_index("trials")
    assert list(stability["tau"]) == pytest.approx([-1 / 3, 1])
    assert list(stability["other_winner"]) == [1, 0]
    assert (budget.trials, budget.numbers, budget.shown) == (2, [1, 2], Setting("digits", FIRST, "4-of-20"))


def test_three_trials_are_drawn_in_both_orders() -> None:
    """After two of three trials, a has 70 or 50: it wins in half of the orders. All methods have the same order."""
    budget = RanksByBudget.of(trials({"a": [50, 70, 40], "b": [60, 60, 60], "c": [10, 65, 30]}))
    second = budget.curves[budget.curves["trials"] == 2].set_index("method")
    assert second.loc["a", "score"] == pytest.approx(60, abs=1)
    assert tuple(second.loc["a", ["score_low", "score_high"]]) == (50, 70)
    assert second.loc["a", "wins"] == pytest.approx(0.5, abs=0.05)
    assert second.loc["a", "wins"] == 1 - second.loc["b", "wins"]
    assert tuple(second.loc["c", ["rank_low", "rank_high"]]) == (2, 3), "behind a or behind b, with a's luck or without"
    assert list(budget.stability["other_winner"]) == pytest.approx([1, 0.5, 0], abs=0.05)
    assert budget.numbers == [1, 2, 3]


def test_settings_are_averaged_in_each_order() -> None:
    one, other = {"a": [50, 70, 40], "b": [60, 60, 60]}, {"a": [50, 40, 70], "b": [60, 60, 60]}
    budget = RanksByBudget.of(pd.concat([trials(one), trials(other, SECOND)]))
    assert budget.shown is None
    second = budget.curves_of(None).query("trials == 2").set_index("method")
    assert second.loc["a", "score"] == 60, "70 in one of the settings, whatever the order is"
    assert len(budget.curves_of(Setting("digits", SECOND, "4-of-20"))) == 6


def test_failed_trials_count_as_the_lowest_score_of_their_setting() -> None:
    budget = RanksByBudget.of(trials({"a": [None, 70], "b": [30, None]}))
    assert list(budget.curves["score"]) == [30, 70, 30, 30]
    assert "2 trials failed; they count as the lowest score of a trial in their setting." in budget.notes
    assert list(RanksByBudget.of(trials({"a": [None, None], "b": [None, None]})).curves["rank"]) == [1.5] * 4


def test_methods_with_fewer_trials_keep_their_best_score() -> None:
    budget = RanksByBudget.of(trials({"a": [50, 60], "b": [10, 20, 30, 40]}))
    assert list(budget.curves.query("method == 'a'")["score"]) == [50, 60, 60, 60]
    assert any("Fewer than 4 trials" in note and note.endswith(": a.") for note in budget.notes)


def test_curves_never_fall_and_end_at_the_best_for_any_order_of_trials() -> None:
    rng = np.random.default_rng(0)
    scores = {method: list(rng.uniform(10, 90, 6).round(3)) for method in "abcd"}
    budget = RanksByBudget.of(trials(scores))
    for method, rows in budget.curves.groupby("method"):
        assert (np.diff(rows["score"]) > -1e-9).all()
        assert rows["score"].iloc[-1] == pytest.approx(max(scores[str(method)]))
    reordered = {method: [found[0], *found[:0:-1]] for method, found in scores.items()}
    other = RanksByBudget.of(trials(reordered))
    for column, close in {"score": 1.0, "rank": 0.1, "wins": 0.05}.items():
        assert np.abs(other.curves[column] - budget.curves[column]).max() < close


def test_too_few_methods_or_trials_are_one_line() -> None:
    with pytest.raises(UserError, match=r"1 methods have trials in all settings \(allowed: at least 2\)"):
        RanksByBudget.of(pd.concat([trials({"a": [1, 2], "b": [1, 2]}), trials({"a": [1, 2]}, SECOND)]))
    with pytest.raises(UserError, match=r"1 trial of each method \(allowed: at least 2\)"):
        RanksByBudget.of(trials({"a": [1], "b": [1]}))


def test_the_winner_is_the_same_if_it_is_among_equal_ones() -> None:
    budget = RanksByBudget.of(trials({"a": [50, 60], "b": [50, 55]}))
    assert list(budget.stability["other_winner"]) == [0, 0]
    assert list(budget.stability["tau"]) == [0, 1]
    assert list(budget.curves["wins"]) == [1, 1, 1, 0]
    assert list(itertools.chain(budget.curves.query("trials == 1")["rank"])) == [1.5, 1.5]


STOPPED = '{"judged": "validation accuracy", "rungs": [0.5], "seed": 1000, "validation": 0.2, "ranges": {}, "set": {}}'


def tuned_and_trials(**budget: object) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tuned runs of three methods in two settings, and their three trials of one. `much` has the values of its
    second best trial, `none` those of the best one, and `little` those of no trial."""
    tuned = both(seeds=2).query("variant == 'tuned'")
    tuned = tuned.assign(**{"trials": 3, "rounds": 10, "tuning": STOPPED, **budget})
    cycle = {"much": 5, "none": 10, "little": 30}
    tuned["training"] = '{"lr": 0.1, "clip": 10.0}'
    tuned["hyperparameters"] = [f'{{"swa": {{"cycle": {cycle[method]}}}}}' for method in tuned["method"]]
    partition, participation = SETTINGS[0]
    shared = {"dataset": "digits", "partition": partition, "participation": participation}
    rows = [
        {**shared, "method": method, "title": method.upper(), "trial": number, "score": score,
         "values": f'{{"training.lr": 0.1, "hyperparameters.swa.cycle": {cycle}}}',
         "seed": 1000, "validation": 0.2, "scored": "validation accuracy", "rounds": 10}
        for method in GAINS
        for number, (score, cycle) in enumerate([(50.0, 5), (60.0, 10), (np.nan, 10)])
    ]  # fmt: skip
    return tuned, pd.DataFrame(rows)


def test_early_stopping_costs_what_the_chosen_trial_lacks() -> None:
    found = EarlyStopping.of(*tuned_and_trials())
    rows = found.table.set_index("method")
    assert list(rows.index) == ["much", "none"], "the one that lost most first"
    assert rows[["chosen", "rank", "score", "best", "lost"]].to_numpy().tolist() == [
        [0, 2, 50, 60, 10],
        [1, 1, 60, 60, 0],
    ]
    assert found.skipped == 1
    assert list(stopping_words(found)) == [
        "Early stopping chose the best of 3 trials in 1 of 2 cells; in the others, it lost 10.0 points of validation "
        "accuracy on average, at most 10.0 (MUCH)."
    ]
    table = tables.of_early_stopping(found)
    assert table.rows == (("MUCH", "60.0", "50.0", "10.0", "2 of 3"), ("NONE", "60.0", "60.0", "0.0", "1 of 3"))
    assert "no trial has the values of their tuned runs: 1." in table.markdown()


@pytest.mark.parametrize(
    "budget",
    [
        {"trials": 16},
        {"rounds": 20},
        {"tuning": STOPPED.replace("[0.5]", "[]")},
        {"tuning": STOPPED.replace("1000", "1")},
    ],
)
def test_early_stopping_is_not_judged_by_trials_of_another_budget(budget: dict[str, object]) -> None:
    with pytest.raises(UserError, match="no tuned runs are of a search with early stopping"):
        EarlyStopping.of(*tuned_and_trials(**budget))
