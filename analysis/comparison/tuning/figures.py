"""The figures of a report on tuning: untuned and tuned leaderboard, best-so-far curves, and ranks."""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator, PercentFormatter
from matplotlib.transforms import ScaledTranslation

from fedflat.analysis.comparison.report.looks import COLOURS, MARKERS, ROW
from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.comparison.statistics.verdicts import BETTER, NONE, UNCLEAR, WORSE
from fedflat.analysis.comparison.tuning.budget import RanksByBudget
from fedflat.analysis.comparison.tuning.gain import ALL, Gain
from fedflat.analysis.comparison.tuning.tables import budget_notes, gain_notes, in_setting, rank_change
from fedflat.analysis.figures.base import LEGEND, STYLE, Body, figure_style, most_side_by_side, new_figure
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title

_WIDE = 4.5
_MEANS = {"untuned": "white", "tuned": "#333333"}
"""The faces of points, by variant."""
_INK, _LINE = "#333333", "#0072B2"
_POINT: dict[str, Any] = {"color": _INK, "marker": "o", "markersize": 3.6, "linewidth": 1, "linestyle": "", "zorder": 3}
_BEST = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
"""Colours of the best methods after all trials; hues of Okabe and Ito."""


def of_gain(gain: Gain, width: float) -> Iterator[ReportFigure]:
    """The leaderboard over all settings and, if there are several, in each one."""
    with figure_style():
        yield _leaderboard(gain, width)
        if len(gain.settings) > 1:
            yield _settings(gain, width)


def of_budget(budget: RanksByBudget, width: float) -> Iterator[ReportFigure]:
    """Curves of the best score, and of the ranks."""
    with figure_style():
        yield _curves(budget, width)
        yield _ranks(budget, width)


def _leaderboard(gain: Gain, width: float) -> ReportFigure:
    """Untuned and tuned means, joined by a line; and, in wide figures, the gain."""
    table = gain.of_setting()
    methods, wide = list(table["method"]), width >= _WIDE
    figure, body = new_figure(width, max(ROW * len(methods), 1.2) + 0.85)
    panels = body.subplots(1, 2 if wide else 1, sharey=True, squeeze=False, width_ratios=(1.7, 1) if wide else (1,))
    _dumbbells(panels[0, 0], table)
    panels[0, 0].set_xlabel("Test accuracy (%)")
    panels[0, 0].set_yticks(range(len(methods)), [gain.titles[method] for method in methods])
    if wide:
        axes = panels[0, 1]
        axes.axvline(0, color="#777777", linewidth=0.8, zorder=1)
        for place, row in enumerate(table.to_dict("records")):
            axes.hlines(place, row["gain_low"], row["gain_high"], color=COLOURS[row["verdict"]], linewidth=1.2)
            axes.plot(row["gain"], place, **{**_look(row["verdict"]), "linestyle": ""})
        axes.set_xlabel("Gain of tuning (points)")
        axes.grid(visible=False, axis="y")
    ranks = panels[0, -1].secondary_yaxis("right")
    ranks.set_yticks(range(len(methods)), [rank_change(row) for row in table.to_dict("records")])
    ranks.tick_params(length=0)
    ranks.spines["right"].set_visible(False)
    ranks.set_ylabel("Rank, untuned → tuned")
    panels[0, 0].set_ylim(len(methods) - 0.4, -0.6)
    _legend_of_gain(body, table["verdict"] if wide else (), width)
    caption = Caption.of(
        "Untuned and tuned leaderboard",
        "Test accuracy of each method with untuned and with tuned values, and the gain of tuning.",
        [
            "The best tuned method is first. Bars: 95 % intervals.",
            "The interval of a gain is that of paired differences.",
            *gain_notes(gain),
        ],
    )
    return ReportFigure("gain", caption, table, figure)


def _settings(gain: Gain, width: float) -> ReportFigure:
    """The same means in a panel per setting; methods in the order of their tuned mean over all settings."""
    methods, count = list(gain.of_setting()["method"]), len(gain.settings)
    columns = most_side_by_side(count) if width >= _WIDE else min(2, count)
    rows = -(-count // columns)
    figure, body = new_figure(width, rows * (ROW * len(methods) + 0.5) + 0.5)
    grid = body.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    for axes, setting in zip(grid.flat, gain.settings, strict=False):
        _dumbbells(axes, gain.of_setting(setting).set_index("method").loc[methods].reset_index())
        axes.set_title(setting_title(setting).replace(", ", ",\n"))
    grid[0, 0].set_yticks(range(len(methods)), [gain.titles[method] for method in methods])
    grid[0, 0].set_ylim(len(methods) - 0.4, -0.6)
    body.supxlabel("Test accuracy (%)", fontsize=STYLE["axes.labelsize"])
    _legend_of_gain(body, (), width)
    caption = Caption.of(
        "Untuned and tuned accuracies in each setting",
        "Test accuracy of each method with untuned and with tuned values; the best tuned mean over all settings is "
        "first.",
        ["Bars: 95 % intervals.", *gain_notes(gain)],
    )
    frame = gain.table[gain.table["dataset"] != ALL]
    return ReportFigure("gain_settings", caption, frame, figure)


def _dumbbells(axes: Axes, table: pd.DataFrame) -> None:
    for place, row in enumerate(table.to_dict("records")):
        axes.hlines(place, *sorted((row["mean_untuned"], row["mean_tuned"])), color="#c8c8c8", linewidth=2.2, zorder=1)
        for variant, face in _MEANS.items():
            axes.hlines(
                place, row[f"mean_low_{variant}"], row[f"mean_high_{variant}"], color=_INK, linewidth=1, zorder=2
            )
            axes.plot(row[f"mean_{variant}"], place, **{**_POINT, "markerfacecolor": face})
    axes.grid(visible=False, axis="y")


def _look(kind: str) -> dict[str, Any]:
    """The look of a verdict."""
    size = 6 if kind in (UNCLEAR, NONE) else 3.5
    return {"color": COLOURS[kind], "marker": MARKERS[kind], "markersize": size, "linewidth": 1.2}


def _legend_of_gain(body: Body, verdicts: Iterable[str], width: float) -> None:
    handles = [
        Line2D([], [], **{**_POINT, "linestyle": "-", "markerfacecolor": face}, label=variant)
        for variant, face in _MEANS.items()
    ]
    words = {BETTER: "tuned is better", UNCLEAR: "cannot tell", WORSE: "tuned is worse"}
    handles += [Line2D([], [], **_look(kind), label=word) for kind, word in words.items() if kind in set(verdicts)]
    body.legend(handles=handles, loc="outside upper center", ncols=len(handles) if width >= _WIDE else 2, **LEGEND)


def _curves(budget: RanksByBudget, width: float) -> ReportFigure:
    """A panel per method, the best one first: its best score so far, above the curves of all methods in grey."""
    frame = budget.curves_of(budget.shown)
    wide = frame.pivot(index="trials", columns="method", values="score")
    # One line with gaps: a line for each method in each panel takes many seconds.
    others = wide.reindex([*wide.index, wide.index[-1] + 1]).reset_index().melt("trials")
    by_method = dict(list(frame.groupby("method")))
    side = min(6 if width >= _WIDE else 3, len(by_method))
    down = -(-len(by_method) // side)
    figure, body = new_figure(width, max(down * 0.95, 1.5) + 0.35)
    grid = body.subplots(down, side, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(by_method) :]:
        axes.set_visible(False)
    for axes, method in zip(grid.flat, budget.best_first, strict=False):
        axes.plot(others["trials"], others["value"], color="#d4d4d4", linewidth=0.4, zorder=1)
        own = by_method[method]
        axes.fill_between(own["trials"], own["score_low"], own["score_high"], color=_LINE, alpha=0.25, linewidth=0)
        axes.plot(own["trials"], own["score"], color=_LINE, linewidth=1.3)
        axes.set_title(budget.titles[method], fontsize=7, pad=2)
        _axis_of_trials(axes, budget.trials)
        axes.tick_params(labelsize=6)
    for axes in grid.flat[max(len(by_method) - side, 0) : len(by_method)]:
        axes.tick_params(labelbottom=True)
    body.supxlabel("Trials", fontsize=STYLE["axes.labelsize"])
    body.supylabel("Best validation accuracy (%)", fontsize=STYLE["axes.labelsize"])
    caption = Caption.of(
        "Best score and number of trials",
        f"Best validation accuracy (%) among the first trials of each method, {in_setting(budget)}; the best method "
        f"after {budget.trials} trials is first.",
        [
            "Line: mean over the orders; area: the range of 95 % of them; grey: the other methods.",
            *budget_notes(budget),
        ],
    )
    return ReportFigure("budget", caption, frame, figure)


def _ranks(budget: RanksByBudget, width: float) -> ReportFigure:
    """Ranks against the number of trials; next to them, how close the ranking is to the last one."""
    frame = budget.curves_of(budget.shown)
    ranks = frame.pivot(index="trials", columns="method", values="rank")
    methods, wide = budget.best_first, width >= _WIDE
    height = 0.15 * len(methods) + 0.6
    if wide:
        figure, body = new_figure(width, max(height, 3.0))
        grid = body.subplot_mosaic([["ranks", "tau"], ["ranks", "winner"]], width_ratios=(2.4, 1))
    else:
        figure, body = new_figure(width, height + 3.2)
        grid = body.subplot_mosaic([["ranks"], ["tau"], ["winner"]], height_ratios=(height, 1.6, 1.6))
    axes = grid["ranks"]
    colours = dict(zip(methods, _BEST, strict=False))
    for method in reversed(methods):
        is_named = method in colours
        colour, line = (colours[method], 1.6) if is_named else ("#b8b8b8", 0.8)
        axes.plot(ranks.index, ranks[method], color=colour, linewidth=line, zorder=3 if is_named else 2)
    for side, number in (("left", 1), ("right", budget.trials)):
        _name_ends(axes, ranks.T[number], budget.titles, colours, side)
    axes.set_ylim(len(methods) + 0.6, 0.4)
    _axis_of_trials(axes, budget.trials)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("Trials")
    axes.set_title("Mean rank (1: best)")
    table = budget.stability_of(budget.shown)
    low, high = table["tau_low"], table["tau_high"]
    grid["tau"].fill_between(table["trials"], low, high, color=_LINE, alpha=0.25, linewidth=0)
    grid["tau"].plot(table["trials"], table["tau"], color=_LINE)
    grid["tau"].set_ylim(min(0.0, float(low.min())), 1.02)
    grid["tau"].set_title(f"τ with the ranking\nafter {budget.trials} trials")
    grid["winner"].plot(table["trials"], table["other_winner"], color=_LINE)
    grid["winner"].set_ylim(0, 1.02)
    grid["winner"].yaxis.set_major_formatter(PercentFormatter(1))
    grid["winner"].set_title(f"Winner is not that\nafter {budget.trials} trials")
    for name in ("tau", "winner"):
        _axis_of_trials(grid[name], budget.trials)
        grid[name].set_xlabel("Trials")
    caption = Caption.of(
        "Ranks and number of trials",
        f"Mean rank of each method by its best validation accuracy among the first trials, {in_setting(budget)}; "
        "Kendall's τ of the ranking with the last one, and the share of orders in which another method wins.",
        ["Areas: the range of 95 % of the orders.", *budget_notes(budget)],
    )
    return ReportFigure("budget_ranks", caption, pd.concat([frame, table], ignore_index=True), figure)


def _name_ends(axes: Axes, ranks: pd.Series, titles: dict[str, str], colours: dict[str, str], side: str) -> None:
    """Names next to the ends of the lines, in the order of the ranks and evenly spaced: tied ones below each other."""
    x, align, gap = (0.0, "right", -3) if side == "left" else (1.0, "left", 3)
    place_of = axes.get_yaxis_transform() + ScaledTranslation(gap / 72, 0, axes.figure.dpi_scale_trans)
    for place, method in enumerate(ranks.sort_values(kind="stable").index, start=1):
        axes.text(x, place, titles[str(method)], transform=place_of, fontsize=6.5, ha=align, va="center",
                  color=colours.get(str(method), "#444444"))  # fmt: skip
    axes.tick_params(axis="y", labelleft=False, left=False)


def _axis_of_trials(axes: Axes, trials: int) -> None:
    """A logarithmic axis from 1 to the number of trials, with powers of two that are well below it."""
    axes.set_xscale("log", base=2)
    ticks = [*(2**k for k in range(trials.bit_length()) if 1.4 * 2**k < trials), trials]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(1, trials)
