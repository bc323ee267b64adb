"""Paired differences with each rival: a panel over all settings and one per setting, one line per rival."""

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.report.looks import COLOURS, MARKERS, ROW
from fedflat.analysis.comparison.report.tables import metric_words
from fedflat.analysis.comparison.report.words import RULE, note_on_tests
from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.comparison.report_table import number
from fedflat.analysis.comparison.statistics.verdicts import BETTER, NONE, UNCLEAR, WORSE
from fedflat.analysis.figures.base import LEGEND, STYLE, figure_style, most_side_by_side, new_figure
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title
from fedflat.analysis.measures.paired import CONFIDENCE

_WIDE = 4.5
"""In narrower figures, the panels of settings are left out."""

_USUAL, _FAR = 0.9, 2.0
"""If an interval ends beyond `_FAR` times the `_USUAL` quantile of all ends, the axis ends there."""


def draw(comparison: Comparison, width: float) -> ReportFigure:
    """Points: mean differences; lines: their intervals; colours and shapes: verdicts."""
    title, order = comparison.titles[comparison.method], list(comparison.verdicts["rival"])
    count = len(comparison.scores.settings)
    panels = {"All settings" if count > 1 else setting_title(comparison.scores.settings[0]): comparison.verdicts}
    if count > 1 and width >= _WIDE:
        panels |= {setting_title(setting): table for setting, table in comparison.by_setting.items()}
    columns = most_side_by_side(len(panels), 5)
    rows = -(-len(panels) // columns)
    with figure_style():
        figure, body = new_figure(width, rows * (ROW * len(order) + 0.5) + 0.45)
        grid = body.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        limit = axis_limit(pd.concat(panels.values()))
        for axes, (heading, table) in zip(grid.flat, panels.items(), strict=False):
            _draw_panel(axes, table.set_index("rival").loc[order], limit)
            axes.set_title(heading.replace(", ", ",\n") if len(panels) > 1 else heading)
        names = [comparison.titles[rival] for rival in order]
        grid[0, 0].set_yticks(range(len(order)), names)
        grid[0, 0].set_ylim(len(order) - 0.4, -0.6)
        body.supxlabel(f"{metric_words(comparison).capitalize()}: {title} − rival", fontsize=STYLE["axes.labelsize"])
        shown = [
            kind for kind in (BETTER, UNCLEAR, WORSE) if any((t["verdict"] == kind).any() for t in panels.values())
        ]
        if shown:
            words = {BETTER: f"{title} is better", UNCLEAR: "cannot tell", WORSE: f"{title} is worse"}
            handles = [Line2D([], [], label=words[kind], **_look(kind)) for kind in shown]
            body.legend(
                handles=handles, loc="outside upper center", ncols=len(shown) if width >= _WIDE else 1, **LEGEND
            )
    caption = Caption.of(
        "Paired differences",
        f"Mean differences of {title} and rivals, the best rival at the top, with {100 * CONFIDENCE:g} % intervals.",
        [
            f"Colours and shapes: the verdicts. {RULE}",
            "Intervals are not corrected for the number of rivals or settings.",
            *(["Triangles: the difference is beyond the axis, and stands next to it."] if math.isfinite(limit) else []),
            *note_on_tests(comparison),
        ],
    )
    frame = pd.concat([table.assign(panel=heading) for heading, table in panels.items()], ignore_index=True)
    return ReportFigure("differences", caption, frame, figure)


def axis_limit(table: pd.DataFrame) -> float:
    """Where the axis of differences ends on both sides, so that one rival that is far off does not hide the others.

    Infinity if all intervals are of a similar size.
    """
    ends = table[["difference", "interval_low", "interval_high"]].abs().max(axis=1).dropna()
    usual = ends.quantile(_USUAL) if len(ends) else 0.0
    return float(1.1 * usual) if 0 < _FAR * usual < ends.max() else math.inf


def _draw_panel(axes: Axes, table: pd.DataFrame, limit: float) -> None:
    axes.axvline(0, color="#777777", linewidth=0.8, zorder=1)
    for place, row in enumerate(table.to_dict("records")):
        colour, look = COLOURS[row["verdict"]], _look(row["verdict"]) | {"linestyle": "none"}
        axes.hlines(place, row["interval_low"], row["interval_high"], color=colour, linewidth=1.2)
        if abs(row["difference"]) <= limit:
            axes.plot(row["difference"], place, **look)
            continue
        is_right = row["difference"] > 0
        axes.plot(limit if is_right else -limit, place, **(look | {"marker": ">" if is_right else "<"}), clip_on=False)
        axes.annotate(
            number(row["difference"], "+.1f"),
            (limit if is_right else -limit, place),
            xytext=(-5 if is_right else 5, 0),
            textcoords="offset points",
            ha="right" if is_right else "left",
            va="center",
            fontsize=STYLE["xtick.labelsize"],
            color=colour,
        )
    if math.isfinite(limit):
        axes.set_xlim(-limit, limit)
    axes.grid(visible=False, axis="y")


def _look(kind: str) -> dict[str, Any]:
    size = 6 if kind in (UNCLEAR, NONE) else 3.5
    return {"color": COLOURS[kind], "marker": MARKERS[kind], "markersize": size, "linewidth": 1.2}
