"""Columns that work their numbers out: targets, multiples, gains, means over settings, units, summaries of a run."""

import re
from typing import Any

import pandas as pd
import pytest

from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.tables.formats import markdown
from fedflat.analysis.tables.table import fill
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, metrics, words, write
from tests.analysis.tables.tables_by_hand import ACCURACY, TARGET, layout, reaching

MOSTLY = ["fedavg", "fedsam", "fedlesam_s"]


def to_target(tidy: Tidy, **column: Any) -> list[str]:
    """The entries as Markdown prints them."""
    write(tidy.results, CellAddress(HARD, "fedavg"), "convergence", reaching((200, 1), (400, 1), (300, 1)))
    write(tidy.results, CellAddress(HARD, "fedsam"), "convergence", reaching((100, 1), (800, 0), (800, 0)))
    write(tidy.results, CellAddress(HARD, "fedlesam_s"), "convergence", reaching((800, 0), (800, 0)))
    filled = fill("t", layout(columns=[{**TARGET, **column}], methods=["fedavg", "fedsam", "fedlesam_s"]), tidy)
    rows = [line for line in markdown(filled).splitlines() if line.startswith("| ")]
    return [line.split(" | ")[1].removesuffix(" |") for line in rows[2:]]  # after the header and the rule


def test_a_target_that_is_not_reached_is_censored(tidy: Tidy) -> None:
    """A mean over the seeds that reach it would favour those methods whose slow seeds never do."""
    assert to_target(tidy) == ["**300 ± 100**", "800+ (1 of 3 seeds)", "800+"]
    assert to_target(tidy, target="fedavg") == ["**600 ± 200**", "1600+ (1 of 3 seeds)", "1600+"]


def test_multiples_are_taken_seed_by_seed(tidy: Tidy) -> None:
    """800 / 400 and 800 / 300; 800 / 200 and 800 / 400."""
    shown = to_target(tidy, relative_to="fedavg", decimals=2)
    assert shown == ["**1.00 ± 0.00**", "2.33+ (1 of 3 seeds)", "3.00+"]


def test_multiples_of_what_was_not_reached_are_not_shown(tidy: Tidy) -> None:
    """A mean over the seeds in which the reference got there would be over its lucky ones."""
    of_fedsam = ["reference: 1 of 3 seeds", "reference: 1 of 3 seeds", "reference: 1 of 2 seeds"]
    assert to_target(tidy, relative_to="fedsam", decimals=2) == of_fedsam
    of_fedlesam = ["reference: 0 of 3 seeds", "reference: 0 of 3 seeds", "reference: 0 of 2 seeds"]
    assert to_target(tidy, relative_to="fedlesam_s") == of_fedlesam


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({**TARGET, "target": None}, "rounds_to_target needs a target"),
        ({**ACCURACY, "target": 70}, "test_accuracy does not allow target or smoothed"),
        ({**ACCURACY, "smoothed": True}, "does not allow target or smoothed"),
        ({**TARGET, "relative_to": "fedswa"}, "unknown method of the table 'fedswa'"),
    ],
)
def test_targets_stand_where_they_belong(column: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        layout(columns=[column])


def test_each_quantity_comes_from_its_own_file(tidy: Tidy) -> None:
    sharp = pd.DataFrame({"seed": [0, 1, 2], "metric": "lambda_max", "value": [10.0, 20.0, 30.0], "stderr": None})
    write(tidy.results, CellAddress(HARD, "fedavg"), "hessian", sharp)
    table = fill("t", layout(columns=[{**ACCURACY, "metric": "lambda_max"}, ACCURACY], methods=["fedavg"]), tidy)
    assert [entry.mean for entry in table.entries[0][0]] == [20, 82]


def cells_of(tidy: Tidy, **changes: Any) -> list[str]:
    """The entries of a table's last column as Markdown prints them, without marks."""
    text = markdown(fill("t", layout(**{"columns": [ACCURACY], **changes}), tidy))
    lines = [line for line in text.splitlines()[4:] if line.startswith("| Fed")]
    return [re.sub(r"\*\*|</?u>| \|$", "", line.split(" | ")[-1]) for line in lines]


def test_gains_are_taken_seed_by_seed(tidy: Tidy) -> None:
    """84 - 80, 84 - 82, 78 - 84: mean 0, (16 + 4 + 36) / 2 = 28; in percent 5, 2.44, -7.14."""
    gain = {**ACCURACY, "gain_over": {"fedsam": "fedavg", "fedlesam_s": "feddyn"}}
    assert cells_of(tidy, columns=[gain])[:3] == ["–", "0.00 ± 5.29", "-29.00 ± 0.00 (2 of 3 seeds)"]
    of_diverged = {**ACCURACY, "gain_over": {"fedsam": "feddyn"}}
    assert cells_of(tidy, columns=[of_diverged])[1] == "reference: 2 of 3 seeds"
    assert cells_of(tidy, columns=[{**gain, "in_percent": True}])[1] == "0.10 ± 6.40"
    caption = words(fill("t", layout(columns=[gain]), tidy).caption)
    assert "Gains, seed by seed: FedSAM over FedAvg, FedLESAM-S over FedDyn." in caption


def test_means_over_settings_need_all_of_them(tidy: Tidy) -> None:
    """FedAvg: (80 + 70) / 2, (82 + 70) / 2, and no third seed in the other setting."""
    place = Setting("digits", "dirichlet-0.1", "10-of-20")
    write(tidy.results, CellAddress(place, "fedavg"), "metrics", metrics([70, 70]))
    both = {**ACCURACY, "mean_of": [{"participation": "4-of-20"}, {"participation": "10-of-20"}]}
    assert cells_of(tidy, columns=[both], methods=MOSTLY) == [
        "75.50 ± 0.71 (2 of 3 seeds)", "1 of 2 settings", "1 of 2 settings",
    ]  # fmt: skip


def test_a_block_may_have_other_labels_than_its_columns(tidy: Tidy) -> None:
    column = {**ACCURACY, "select": {"partition": "dirichlet-0.1", "participation": "10-of-20"}}
    assert cells_of(tidy, columns=[column], methods=MOSTLY, blocks=[{}]) == ["not run"] * 3
    swapped = cells_of(tidy, columns=[column], methods=MOSTLY, blocks=[{"instead": {"10-of-20": "4-of-20"}}])
    assert swapped[0] == "82.00 ± 2.00"


def test_values_are_divided_by_the_unit(tidy: Tidy) -> None:
    assert cells_of(tidy, columns=[{**ACCURACY, "unit": 10}], methods=MOSTLY)[0] == "8.20 ± 0.20"


def curve(tidy: Tidy, values: list[float]) -> None:
    """One seed of FedAvg that is evaluated every round."""
    run = pd.concat([metrics([values[0]])] * len(values)).drop_duplicates("round")
    frame = run.iloc[[0] * len(values)].assign(round=range(1, len(values) + 1), test_accuracy=values)
    write(tidy.results, CellAddress(HARD, "fedavg"), "metrics", frame)


def test_deviation_over_a_runs_last_hundred_evaluations(tidy: Tidy) -> None:
    """0 and 2 by turns have the deviation 1; what comes before does not count."""
    deviation = {**ACCURACY, "metric": "test_accuracy_std_last100", "decimals": 6}
    curve(tidy, [50.0] * 20 + [0.0, 2.0] * 50)
    assert cells_of(tidy, columns=[deviation], methods=["fedavg"]) == ["1.000000 (1 of 3 seeds)"]
    curve(tidy, [50.0])
    assert cells_of(tidy, columns=[deviation], methods=["fedavg"]) == ["no value"]


def test_accuracy_after_half_of_the_rounds_follows_the_rule(tidy: Tidy) -> None:
    half = {**ACCURACY, "metric": "test_accuracy_half"}
    curve(tidy, [10.0, 20.0, 30.0, 40.0, 50.0])
    assert cells_of(tidy, columns=[half], methods=["fedavg"]) == ["20.00 (1 of 3 seeds)"]
    mean = {"rule": "mean_last_n", "n": 2}
    assert cells_of(tidy, columns=[half], methods=["fedavg"], final=mean) == ["15.00 (1 of 3 seeds)"]
    last = {**half, "final": {"rule": "last"}}
    assert cells_of(tidy, columns=[last], methods=["fedavg"], final=mean) == ["20.00 (1 of 3 seeds)"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"gain_over": {"fedsam": "fedswa"}}, "unknown method of the table 'fedswa'"),
        (
            {"gain_over": {"fedsam": "fedavg"}, "relative_to": "fedavg"},
            "relative_to and gain_over are not allowed together",
        ),
        ({"in_percent": True}, "in_percent needs gain_over"),
        ({"published": {"valeu": "std"}}, "unknown key of published numbers 'valeu'; did you mean 'value'"),
        ({"published": {"value": "mean"}}, "unknown part of published numbers 'mean'"),
        ({"metric": "lpf", "final": {"rule": "last"}}, "lpf does not allow final"),
        ({"metric": "miou"}, "unknown metric 'miou'"),
        ({"unit": 0}, "unit"),
    ],
)
def test_mistakes_in_columns_are_reported(column: dict[str, Any], message: str) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        layout(columns=[{**ACCURACY, **column}])
