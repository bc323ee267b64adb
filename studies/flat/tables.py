"""The tables of a benchmark of flatness."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from fedflat.analysis.comparison.comparable import Row
from fedflat.analysis.comparison.flat.pairs import BASE, YES
from fedflat.analysis.comparison.flat.units import SETTING
from fedflat.analysis.comparison.report_table import NO_NUMBER, ReportTable, number, with_interval
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title
from fedflat.analysis.measures.fitting import FITTED
from fedflat.bench.experiments.address import Setting
from fedflat.bench.tuning.protocol.schema import Protocol
from studies.flat.itself import Itself

REPORT = "flat"

UNIT = "The unit is the tuning seed: a whole search, with the mean of its training seeds."
SIDES = "Side by side: method / base."


def of_pairs(table: pd.DataFrame, protocol: Protocol) -> Iterator[ReportTable]:
    """The pairs of each setting."""
    equal_compute = [name for name in protocol.equal_compute if f"difference_{name}" in table]
    header = (
        "pair", "tuning seeds", "difference", "corrected p", "the perturbation is", "fitted", "training (%)",
        "validation (%)", "test (%)", "gap", "λ_max", *(f"base, {name}" for name in equal_compute),
    )  # fmt: skip
    for setting, rows in table.groupby(SETTING, sort=False):
        cells = [
            (
                f"{row['title']} − {row[f'title{BASE}']}",
                str(row["n"]),
                with_interval(row["difference"], row["low"], row["high"], "+.1f"),
                number(row["p_corrected"], ".3f"),
                row["verdict"] or "–",
                row["state"],
                _sides(row, "train_accuracy", ".1f"),
                _sides(row, "validation_accuracy", ".1f"),
                _sides(row, "test_accuracy", ".1f"),
                _sides(row, "generalisation_gap", ".1f"),
                _sides(row, "lambda_max", ".2f"),
                *(number(row[f"difference_{name}"], "+.1f") for name in equal_compute),
            )
            for row in rows.to_dict("records")
        ]
        caption = Caption.of(
            f"What a perturbation adds: {_title(setting)}",
            "Test accuracy of each method minus that of its base in points, paired by tuning seed.",
            [
                UNIT,
                "Intervals: 95 %, Student's t, of at least three tuning seeds.",
                "Corrected p: sign-flip test with joint flips of all pairs of the setting; a verdict needs "
                f"{max(protocol.rule.least_units, len(protocol.tuning_seeds))} tuning seeds, a corrected p-value below "
                f"{protocol.rule.alpha:g}, and an interval without 0.",
                f"Fitted: the mean training accuracy of both is at least {protocol.fitted.least:g} %; within a point: "
                f"they differ by at most {protocol.rounds.otherwise.within_points:g}; not fitted: no verdict.",
                SIDES,
                factors_text(protocol),
            ],
        )
        yield ReportTable(f"pairs_{_slug(setting)}", caption, header, tuple(cells), rows, report=REPORT)


def of_methods(table: pd.DataFrame, least: float) -> Iterator[ReportTable]:
    """The ranking of fitted methods in each setting, and the others below."""
    header = ("method", "rank", "fitted", "training (%)", "validation (%)", "test (%)", "deviation", "gap", "λ_max")
    for setting, rows in table.groupby(SETTING, sort=False):
        cells = [
            (
                row["title"],
                str(int(row["rank"])) if row["state"] == YES else row["state"],
                f"{row['fitted_units']} of {row['units']}",
                number(row["train_accuracy"], ".1f"),
                _optional(row, "validation_accuracy", ".1f"),
                number(row["test_accuracy"], ".1f"),
                number(row["test_deviation"], ".1f"),
                number(row["generalisation_gap"], ".1f"),
                _optional(row, "lambda_max", ".2f"),
            )
            for row in rows.to_dict("records")
        ]
        caption = Caption.of(
            f"Fitted methods: {_title(setting)}",
            f"Means over tuning seeds; ranked are methods with a mean training accuracy of at least {least:g} %.",
            [
                UNIT,
                "Fitted: tuning seeds whose runs are all fitted.",
                "Deviation: the standard deviation over tuning seeds.",
            ],
        )
        yield ReportTable(f"methods_{_slug(setting)}", caption, header, tuple(cells), rows, report=REPORT)


def of_contrast(name: str, units: pd.DataFrame) -> Iterator[ReportTable]:
    """Accuracies on given labels, on true labels and on the test, of an experiment with wrong training labels."""
    header = ("method", "tuning seeds", "given labels (%)", "true labels (%)", "test (%)")
    columns = ["train_accuracy", "train_true_accuracy", "test_accuracy"]
    for setting, rows in units.groupby(SETTING, sort=False):
        means = rows.groupby(["method", "title"], sort=False)[columns].mean().reset_index()
        counts = rows.groupby("method").size()
        means = means.sort_values("test_accuracy", ascending=False)
        cells = [
            (row["title"], str(counts[row["method"]]), *(number(row[column], ".1f") for column in columns))
            for row in means.to_dict("records")
        ]
        caption = Caption.of(
            f"Wrong labels: {_title(setting)}",
            "Training accuracy on the labels given and on the true ones, and test accuracy, with the values of the "
            "search without wrong labels.",
            [UNIT],
        )
        yield ReportTable(f"{name}_{_slug(setting)}", caption, header, tuple(cells), means, report=REPORT)


def of_references(runs: pd.DataFrame) -> ReportTable:
    """Means over seeds of experiments with their own values."""
    columns = ["train_accuracy", "validation_accuracy", "test_accuracy", "generalisation_gap"]
    groups = runs.groupby(["experiment", "method", "title"], sort=False)
    means = groups[columns].mean().join(groups.size().rename("seeds")).reset_index()
    cells = [
        (f"{row['title']} ({row['experiment']})", str(row["seeds"]), *(number(row[name], ".1f") for name in columns))
        for row in means.to_dict("records")
    ]
    header = ("method (experiment)", "seeds", "training (%)", "validation (%)", "test (%)", "gap")
    caption = Caption.of("References", "Means over training seeds, with values that were not searched.", [])
    return ReportTable("references", caption, header, tuple(cells), means, report=REPORT)


def of_speed(table: pd.DataFrame) -> Iterator[ReportTable]:
    """Rounds and traffic until the training data are fitted, in each setting."""
    header = ("method", "tuning seeds", "rounds to fit", "MB to fit", "test at the end (%)")
    for setting, rows in table.groupby(SETTING, sort=False):
        cells = [
            (
                row["title"],
                f"{row['reached']} of {row['units']}",
                number(row["fit_round"], ".0f"),
                number(row["fit_mb"], ".1f"),
                number(row["test_accuracy"], ".1f"),
            )
            for row in rows.to_dict("records")
        ]
        caption = Caption.of(
            f"Speed: {_title(setting)}",
            f"The first evaluated round with a training accuracy of {FITTED:g} %, and what all clients have "
            "communicated until then.",
            ["Means over the tuning seeds in which each run reaches it; methods that do not are last."],
        )
        yield ReportTable(f"speed_{_slug(setting)}", caption, header, tuple(cells), rows, report=REPORT)


def of_effort(table: pd.DataFrame, protocol: Protocol) -> ReportTable:
    """Trials, gradients and hours of each method's search."""
    header = ("method, setting", "tuning seeds", "trials", "of its base", "in all", "fitted (%)", "failed",
              "gradients", "hours")  # fmt: skip
    cells = [
        (
            f"{row['method']}, {_title([row[key] for key in SETTING])}",
            str(row["seeds"]),
            number(row["trained"], "g"),
            str(row["shared"]),
            number(row["trained"] + row["shared"], "g"),
            number(100 * row["fitted"], ".0f"),
            str(row["failed"]),
            number(row["gradients"], ",.0f"),
            number(row["hours"], ".2f"),
        )
        for row in table.to_dict("records")
    ]
    caption = Caption.of(
        "Trials of the search",
        "What was tried, and what it cost, for each tuning seed.",
        [
            f"The protocol gives each method {protocol.trials.all} trials; a method takes the best "
            f"{protocol.refine.around} of the first {protocol.trials.shared} of its base. "
            f"{2 * protocol.trials.confirm} of them train the best values with a second seed.",
            "Gradients of mini-batches, and hours of one processor, without those of the base's trials.",
        ],
    )
    return ReportTable("effort", caption, header, tuple(cells), table, report=REPORT)


def of_ends(ends: pd.DataFrame, points: pd.DataFrame) -> ReportTable:
    """Where the winners lie in their ranges, before and after these have widened."""
    cells = []
    for name, rows in ends.groupby("name", sort=False):
        at_end = rows[rows["end"] != ""]
        cells.append(
            (
                str(name),
                str(len(rows)),
                str((rows["start_end"] != "").sum()),
                str(rows["is_wider"].sum()),
                str(len(at_end)),
                str(at_end["at_bound"].sum()),
                f"{rows['value'].min():g} to {rows['value'].max():g}",
            )
        )
    for name, rows in points.groupby("name", sort=False) if len(points) else ():
        at_last = (rows["where"] == "last").sum()
        none = (rows["where"] == "base").sum()
        cells.append((f"points of {name}", str(len(rows)), str(at_last), "–", "–", "–", f"{none} times none"))
    header = ("value", "winners", "at an end, first range", "range widened", "at an end, last range", "at the bound",
              "values")  # fmt: skip
    caption = Caption.of(
        "Ends of ranges",
        "How many winners lie within 5 % of an end of the range of a value, or beyond it.",
        ["Of points: how many winners have the last one or one beyond, and how many have none, as their base."],
    )
    return ReportTable("ends", caption, header, tuple(cells), ends, report=REPORT)


def of_winners(won: pd.DataFrame) -> ReportTable:
    """The values that each search has chosen."""
    cells = [
        (
            f"{row['method']}, {_title([row[key] for key in SETTING])}",
            str(row["tuning_seed"]),
            values_text(row["values"]),
            number(row["train_accuracy"], ".1f"),
            number(row["validation_accuracy"], ".1f"),
            "yes" if row["fitted"] else "no",
        )
        for row in won.sort_values([*SETTING, "method", "tuning_seed"]).to_dict("records")
    ]
    header = ("method, setting", "tuning seed", "values", "training (%)", "validation (%)", "fitted")
    caption = Caption.of(
        "Chosen values", "The best confirmed trial of each search.", ["Accuracies are means over its two seeds."]
    )
    return ReportTable("winners", caption, header, tuple(cells), won, report=REPORT)


def of_itself(found: Itself) -> Iterator[ReportTable]:
    """Each method against itself, and how often the rule would be wrong."""
    cells = [
        (
            f"{row['title']}, {_title([row[key] for key in SETTING])}",
            str(row["n"]),
            number(row["mean"], "+.1f"),
            number(row["size"], ".1f"),
            number(row["largest"], ".1f"),
            "–" if row["differs"] is None or pd.isna(row["differs"]) else "yes" if row["differs"] else "no",
        )
        for row in found.table.to_dict("records")
    ]
    caption = Caption.of(
        "Each method against itself",
        "Test accuracy with the values of a tuning seed minus that with the values of the next one, in the same "
        "training seeds, in points.",
        [
            "Size: the mean size of the difference over the tuning seeds, and the largest one.",
            "Differs: by the rule of the pairs, without correction.",
        ],
    )
    header = ("method, setting", "tuning seeds", "mean", "size", "largest", "differs from itself")
    yield ReportTable("itself", caption, header, tuple(cells), found.table, report=REPORT)
    if found.rates.empty:
        return
    rates = [
        (
            f"{row['gap']:g}",
            _title([row[key] for key in SETTING]),
            str(row["methods"]),
            percent_with_interval(row),
        )
        for row in found.rates.to_dict("records")
    ]
    caption = Caption.of(
        "How often the rule is wrong, and what it finds",
        "Verdicts (%) on differences that are drawn from those of each method from itself, with random signs, if the "
        "true difference has this size.",
        ["Without a true difference, each verdict is wrong.", "Intervals: 95 %, by resampling methods."],
    )
    columns = ("true difference", "setting", "methods", "verdicts (%)")
    yield ReportTable("rates", caption, columns, tuple(rates), found.rates, report=REPORT)


def percent_with_interval(row: Row) -> str:
    """A rate with its interval in percent."""
    rate, low, high = (number(100 * row[name], ".1f") for name in ("rate", "low", "high"))
    return f"{rate} [{low}, {high}]"


def factors_text(protocol: Protocol) -> str:
    """The rows of equal compute in words."""
    texts = []
    for name, one in protocol.equal_compute.items():
        amounts = {"local steps": one.local_steps, "rounds": one.rounds}
        more = " and ".join(f"{factor} times the {what}" for what, factor in amounts.items() if factor > 1)
        texts.append(f"base, {name}: the base with {more}, minus the base")
    return f"{'; '.join(texts)}.".capitalize() if texts else ""


def values_text(values: str) -> str:
    """The values of a trial, JSON by place, in words: 'lr 0.2, rho 0.1'."""
    return ", ".join(f"{place.rpartition('.')[2]} {_plain(one)}" for place, one in json.loads(values).items())


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {one}" for key, one in value.items())
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _sides(row: Row, column: str, form: str) -> str:
    own, of_base = (float(row.get(f"{column}{end}", math.nan)) for end in ("", BASE))
    if math.isnan(own) and math.isnan(of_base):
        return NO_NUMBER
    return f"{number(own, form)} / {number(of_base, form)}"


def _optional(row: Row, column: str, form: str) -> str:
    return number(row.get(column, math.nan), form)


def _title(setting: Any) -> str:
    return setting_title(Setting(*setting))


def _slug(setting: Any) -> str:
    return "_".join(str(part).replace("-", "_").replace(".", "") for part in setting[1:])
