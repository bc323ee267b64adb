"""The tables of a report on tuning."""

import math
from collections.abc import Callable, Iterator

from fedflat.analysis.comparison.comparable import Row
from fedflat.analysis.comparison.report_table import ReportTable, number, with_lost
from fedflat.analysis.comparison.run_table import rule_of
from fedflat.analysis.comparison.tuning.budget import ORDERS, RanksByBudget
from fedflat.analysis.comparison.tuning.early_stopping import EarlyStopping
from fedflat.analysis.comparison.tuning.gain import ALL, Gain
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.experiments.address import IDS, Setting

REPORT = "tuning"
"""The name of the page, and the beginning of labels in LaTeX."""

RANKS = (
    "The interval of a rank begins after the methods that are better by the corrected tests, and ends before those "
    "that are worse."
)
LOST = (
    "Gains and ranks count a run without a value, because it diverged, as the worst run of its setting, untuned and "
    "tuned ones. Means are those of the runs that have a value; without any such run in a setting, there is no mean "
    "over the settings."
)


def of_gain(gain: Gain) -> Iterator[ReportTable]:
    """The untuned and the tuned leaderboard, over all settings and in each one."""
    yield _gain_table(gain)
    if len(gain.settings) > 1:
        yield _setting_table(gain)


def of_budget(budget: RanksByBudget) -> Iterator[ReportTable]:
    """Scores, gains and ranks after some numbers of trials, and how stable the ranking is."""
    yield _score_table(budget)
    yield _rank_table(budget)
    yield _stability_table(budget)


def of_early_stopping(stopping: EarlyStopping) -> ReportTable:
    """The trial that early stopping chose in each cell, and the best one."""
    cells = stopping.table.to_dict("records")
    settings = list(dict.fromkeys(setting_title(_setting_of(row)) for row in cells))
    rows = [
        (
            f"{row['title']}, {setting_title(_setting_of(row))}" if len(settings) > 1 else row["title"],
            number(row["best"], ".1f"),
            number(row["score"], ".1f"),
            number(row["lost"], ".1f"),
            f"{row['rank']} of {stopping.trials}",
        )
        for row in cells
    ]
    left_out = f"Cells left out, because no trial has the values of their tuned runs: {stopping.skipped}."
    caption = Caption.of(
        "What early stopping costs",
        "Validation accuracy (%) after all rounds of the best trial, and of the trial that the search of the tuned "
        f"values chose, which stopped trials early; {', '.join(settings)}.",
        [
            "Both searches have the same trials: values, seed, rounds and held-out images.",
            "Rank: that of the chosen trial among all trials.",
            *[left_out] * (stopping.skipped > 0),
        ],
    )
    header = ("method", "best (%)", "chosen (%)", "lost (points)", "rank")
    return ReportTable("early_stopping", caption, header, tuple(rows), stopping.table, report=REPORT)


def _setting_of(row: Row) -> Setting:
    return Setting(*(str(row[name]) for name in IDS[:3]))


def gain_notes(gain: Gain) -> list[str]:
    """What the runs are, how they are paired, and what is left out."""
    settings = f"{len(gain.settings)} settings" if len(gain.settings) > 1 else setting_title(gain.settings[0])
    return [
        f"Runs: {settings}, {gain.seeds} seeds, tuned with {' or '.join(map(str, gain.trials))} trials; values: "
        f"{rule_of(gain.report).description}.",
        "Pairs: untuned and tuned runs of the same setting and seed, which have the same data, partition, initial "
        "model and schedule of clients. The unit is the seed, with its mean over the settings.",
        LOST,
    ]


def budget_notes(budget: RanksByBudget) -> list[str]:
    """Notes on the trials, on the intervals, and on the limits of the intervals."""
    return [
        *budget.about,
        f"Intervals: the range of 95 % of {ORDERS:,} random orders of the trials. Trial 0, the untuned values, stays "
        "first; all methods have the same order.",
        f"After all {budget.trials} trials, all orders give the same: the intervals do not contain the spread of other "
        "draws of trials, or of other seeds.",
        *budget.notes,
    ]


def in_setting(budget: RanksByBudget) -> str:
    """Which setting is shown, in words."""
    return f"mean over {len(budget.settings)} settings" if budget.shown is None else setting_title(budget.shown)


def rank_change(row: Row) -> str:
    """For example 12 → 3."""
    return f"{row['rank_untuned']:g} → {row['rank_tuned']:g}"


def _gain_table(gain: Gain) -> ReportTable:
    rows = [
        (
            gain.titles[row["method"]],
            *(_mean(row, variant, gain.seeds * len(gain.settings)) for variant in ("untuned", "tuned")),
            _with_range(row, "gain", "+.1f"),
            number(row["p_corrected"], ".4f"),
            row["verdict"] or "–",
            *(_rank(row, variant) for variant in ("untuned", "tuned")),
        )
        for row in gain.of_setting().to_dict("records")
    ]
    caption = Caption.of(
        "Untuned and tuned leaderboard",
        "Test accuracy (%) of each method with untuned and with tuned values, the gain of tuning in points, and ranks.",
        [
            *gain_notes(gain),
            "Intervals of means and gains: 95 %, Student's t. Corrected p: sign-flip test, by Westfall and Young's "
            "step-down correction for all methods.",
            "Verdict: whether tuned values are better; it needs a corrected p-value below 0.05 and an interval of the "
            "gain without 0.",
            RANKS,
        ],
    )
    header = ("method", "untuned (%)", "tuned (%)", "gain", "corrected p", "tuned is", "rank untuned", "rank tuned")
    return ReportTable("gain", caption, header, tuple(rows), gain.of_setting(), report=REPORT)


def _mean(row: Row, variant: str, runs: int) -> str:
    found: Row = {f"mean{end}": row[f"mean{end}_{variant}"] for end in ("", "_low", "_high")}
    return with_lost(_with_range(found, "mean", ".1f"), row[f"missing_{variant}"], runs)


def _rank(row: Row, variant: str) -> str:
    low, high = row[f"rank_low_{variant}"], row[f"rank_high_{variant}"]
    return f"{row[f'rank_{variant}']:g} [{low}–{high}]"


def _setting_table(gain: Gain) -> ReportTable:
    order = list(gain.of_setting()["method"])
    cells = {
        setting: {row["method"]: _in_setting(row, gain.seeds) for row in gain.of_setting(setting).to_dict("records")}
        for setting in gain.settings
    }
    rows = [(gain.titles[method], *(of_method[method] for of_method in cells.values())) for method in order]
    caption = Caption.of(
        "Gain of tuning in each setting",
        "Test accuracy (%) with tuned values; in parentheses the gain of tuning in points with its 95 % interval; and "
        "the ranks, untuned → tuned.",
        gain_notes(gain),
    )
    frame = gain.table[gain.table["dataset"] != ALL]
    header = ("method", *map(setting_title, gain.settings))
    return ReportTable("gain_settings", caption, header, tuple(rows), frame, report=REPORT)


def _in_setting(row: Row, runs: int) -> str:
    mean = with_lost(number(row["mean_tuned"], ".1f"), row["missing_tuned"], runs)
    return f"{mean} ({_with_range(row, 'gain', '+.1f')}); {rank_change(row)}"


def _score_table(budget: RanksByBudget) -> ReportTable:
    caption = Caption.of(
        "Best score after some trials",
        "Best validation accuracy (%) after so many trials, the range of 95 % of the orders, and in parentheses the "
        f"gain over trial 0 in points; {in_setting(budget)}.",
        ["Scores and gains are means over the orders.", *budget_notes(budget)],
    )

    def text(row: Row) -> str:
        gain = f" ({number(row['gain'], '+.1f')})" if row["trials"] > 1 else ""
        return _with_range(row, "score", ".1f") + gain

    return _by_number(budget, "budget", caption, text)


def _rank_table(budget: RanksByBudget) -> ReportTable:
    caption = Caption.of(
        "Ranks after some trials",
        "Rank of each method (1: best) by its best validation accuracy after so many trials, as mean over the orders, "
        f"and the range of 95 % of them; {in_setting(budget)}.",
        budget_notes(budget),
    )
    return _by_number(budget, "budget_ranks", caption, lambda row: _with_range(row, "rank", ".3g"))


def _by_number(budget: RanksByBudget, name: str, caption: Caption, text: Callable[[Row], str]) -> ReportTable:
    """A table with one row per method, the best one after all trials first, and a column per number of trials."""
    frame = budget.curves_of(budget.shown)
    cells = {(row["method"], row["trials"]): text(row) for row in frame.to_dict("records")}
    rows = [
        (budget.titles[method], *(cells[method, number] for number in budget.numbers)) for method in budget.best_first
    ]
    header = ("method", *map(trials_heading, budget.numbers))
    return ReportTable(name, caption, header, tuple(rows), budget.curves, report=REPORT)


def _stability_table(budget: RanksByBudget) -> ReportTable:
    frame = budget.stability_of(budget.shown)
    rows = [
        (str(row["trials"]), _with_range(row, "tau", ".2f"), f"{100 * row['other_winner']:.0f}")
        for row in frame.to_dict("records")
    ]
    caption = Caption.of(
        "Ranking after some trials and after all",
        f"Kendall's τ_b of the ranking after so many trials with that after {budget.trials}, as mean over the orders "
        f"with the range of 95 % of them, and how often another method is the best; {in_setting(budget)}.",
        budget_notes(budget),
    )
    header = ("trials", "Kendall's τ", "other winner (% of orders)")
    return ReportTable("budget_stability", caption, header, tuple(rows), budget.stability, report=REPORT)


def trials_heading(count: int) -> str:
    """1 trial, 2 trials."""
    return f"{count} trial{'s' * (count != 1)}"


def _with_range(row: Row, name: str, form: str) -> str:
    """A number with its interval, if it has one: 84.1 [83.0, 85.2]."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    interval = "" if math.isnan(low) or low == high else f" [{number(low, form)}, {number(high, form)}]"
    return number(row[name], form) + interval
