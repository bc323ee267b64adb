"""Ranks: of each method in each setting with intervals, and the critical-difference diagram of mean ranks."""

import math

import numpy as np
import pandas as pd
from scikit_posthocs import critical_difference_diagram

from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.report.looks import OTHER, OWN, ROW, bold_own
from fedflat.analysis.comparison.report.words import note_on_tests
from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.comparison.statistics.ranking import mean_ranks, ranking
from fedflat.analysis.figures.base import STYLE, figure_style, most_side_by_side, new_figure, whole_numbers
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.experiments.address import IDS

_WIDE = 4.5
"""In narrower figures there are two panels side by side, and the labels of the diagram are on one side."""


def draw_ranking(comparison: Comparison, width: float) -> ReportFigure:
    """One panel per setting: the rank of each method's mean, with its interval; methods by their mean rank."""
    scores, frame = comparison.scores, ranking(comparison.scores)
    order = list(mean_ranks(scores).ranks.index)
    count = len(scores.settings)
    columns = most_side_by_side(count) if width >= _WIDE else min(2, count)
    rows = -(-count // columns)
    with figure_style():
        figure, body = new_figure(width, rows * (ROW * len(order) + 0.5) + 0.25)
        grid = body.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat[count:]:
            axes.set_visible(False)
        by_setting = dict(list(frame.groupby(IDS[:3], sort=False)))
        for axes, setting in zip(grid.flat, scores.settings, strict=False):
            key = (setting.dataset, setting.partition, setting.participation)
            table = by_setting[key].set_index("method").loc[order]
            for place, (method, row) in enumerate(table.iterrows()):
                colour = OWN if method == comparison.method else OTHER
                axes.hlines(place, row["rank_low"], row["rank_high"], color=colour, linewidth=1.4, alpha=0.7)
                axes.plot(row["rank"], place, "o", color=colour, markersize=3.5)
            axes.set_title(setting_title(setting).replace(", ", ",\n"))
            axes.grid(visible=False, axis="y")
            whole_numbers(axes.xaxis)
        grid[0, 0].set_yticks(range(len(order)), [comparison.titles[method] for method in order])
        grid[0, 0].set_ylim(len(order) - 0.4, -0.6)
        for axes in grid[:, 0]:
            bold_own(axes, order, comparison.method)
        body.supxlabel("Rank of the mean (1: best)", fontsize=STYLE["axes.labelsize"])
    caption = Caption.of(
        "Ranking",
        "Rank of each method in each setting, with 95 % intervals; the best mean rank at the top.",
        [f"Black: {comparison.titles[comparison.method]}.", *note_on_tests(comparison)],
    )
    return ReportFigure("ranking", caption, frame, figure)


def draw_critical(comparison: Comparison, width: float) -> ReportFigure:
    """Mean ranks over settings and seeds; bars join methods that the test cannot distinguish."""
    found = mean_ranks(comparison.scores)
    titles = comparison.titles
    ranks = found.ranks.rename(index=titles)
    distances = np.abs(ranks.to_numpy()[:, None] - ranks.to_numpy())
    alike = pd.DataFrame(np.where(distances > found.critical, 0.0, 1.0), index=ranks.index, columns=ranks.index)
    own = titles[comparison.method]
    one_side = width < _WIDE
    colours = {name: OWN if name == own else "#5a5a5a" for name in ranks.index}
    with figure_style({"axes.grid": False}):
        figure, body = new_figure(width, 1.0)
        axes = body.subplots()
        drawn = critical_difference_diagram(
            ranks,
            alike,  # p-values: 0 or 1
            ax=axes,
            left_only=one_side,
            label_fmt_left="{label}  {rank:.1f} ",
            label_fmt_right=" {rank:.1f}  {label}",
            label_props={"fontsize": 7},
            color_palette=colours,
            elbow_props={"linewidth": 0.6},
            marker_props={"s": 10},
            crossbar_props={"color": "#0072B2", "linewidth": 1.8},
            text_h_margin=0.02 * len(ranks),
        )
        for label in drawn["labels"]:
            label.set_fontweight("bold" if own in label.get_text() else "normal")
        for line, name in zip(drawn["elbows"], _drawn_order(ranks, one_side), strict=True):
            line.set(linewidth=1.4 if name == own else 0.6, zorder=3 if name == own else 1)
        low, high = axes.get_ylim()
        whole_numbers(axes.xaxis)
        axes.tick_params(axis="x", labelsize=7)
        lines = high - low
        figure.set_size_inches(width, 0.13 * lines + 0.4)
        known = f"; critical difference {found.critical:.1f}" if math.isfinite(found.critical) else ""
        axes.set_title(f"Mean rank (1: best){known}", pad=14)
    caption = Caption.of(
        "Mean ranks",
        "Mean rank of each method over settings and seeds; bars join methods that the test cannot distinguish.",
        [
            "Critical difference: Tukey's test with a significance level of 5 % for all pairs together; its unit is "
            "the seed, with its mean ranks over settings.",
            *note_on_tests(comparison),
        ],
    )
    frame = found.ranks.rename("mean_rank").rename_axis("method").reset_index()
    return ReportFigure("critical", caption, frame.assign(critical_difference=found.critical), figure)


def _drawn_order(ranks: pd.Series, one_side: bool) -> list[str]:
    """The names in the order in which the diagram draws them: the right half from the last one on."""
    names = list(ranks.sort_values().index)
    half = len(names) if one_side else (len(names) + 1) // 2
    return [*names[:half], *names[half:][::-1]]
