"""Performance profiles: the share of settings and seeds in which a method is within a distance of the best one."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.report.looks import OTHER, named_looks
from fedflat.analysis.comparison.report.tables import metric_words
from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.comparison.statistics.profiles import cost_profile, gap_profile
from fedflat.analysis.figures.base import LEGEND, figure_style, legend_columns, new_figure, plain_numbers
from fedflat.analysis.figures.palette import Style
from fedflat.analysis.layouts.captions import Caption

_WIDE = 4.5
_REACHED = 0.5
"""A target is drawn if a share of this size of all runs reaches it: the highest one."""
_FARTHEST_COST = 10.0
_SHARE = 0.95
"""The axis of gaps ends where the named methods have this share."""


def draw(comparison: Comparison, width: float) -> ReportFigure:
    """A panel of gaps to the best result; and, if targets are stored, those of rounds and gradients to a target."""
    scores, rows = comparison.scores, comparison.rows
    gaps = gap_profile(scores)
    panels: dict[str, pd.DataFrame] = {f"Gap to the best\n{metric_words(comparison)}": gaps}
    target = shown_target(rows)
    if target is not None:
        accuracy = target.removeprefix("rounds_to_")
        costs = ["rounds", *(["gradients"] if rows["gradients"].notna().all() else [])]
        panels |= {
            f"{cost.capitalize()} to {accuracy} %\nrelative to the fewest": cost_profile(
                rows, scores.methods, target, cost
            )
            for cost in costs
        }
    best = area_order(gaps, scores.methods)
    looks = named_looks(comparison, best)
    with figure_style():
        side = len(panels) if width >= _WIDE else 1
        down = -(-len(panels) // side)
        figure, body = new_figure(width, down * 2.2 + 0.45)
        grid = body.subplots(down, side, sharey=True, squeeze=False)
        for axes, (label, profile) in zip(grid.flat, panels.items(), strict=True):
            ratio = profile is not gaps
            _draw_panel(axes, profile, looks, ratio=ratio)
            axes.set_xlabel(label)
        for axes in grid[:, 0]:
            axes.set_ylabel("Share of settings × seeds")
        handles = [
            Line2D([], [], label=comparison.titles[method], color=look.colour, linestyle=look.dashes)
            for method, look in looks.items()
        ]
        handles.append(Line2D([], [], label="other methods", color=OTHER, linewidth=0.5))
        columns = legend_columns([str(handle.get_label()) for handle in handles], width)
        body.legend(handles=handles, loc="outside lower center", ncols=columns, **LEGEND)
    caption = Caption.of(
        "Performance profiles",
        "Share of settings and seeds in which a method is at most so far from the best method. Higher is better.",
        [
            f"Named: {comparison.titles[comparison.method]}, the methods with the largest area under their line in the "
            "first panel, and FedAvg.",
            *(["Runs that never reach the target are at no distance."] if target is not None else []),
        ],
    )
    return ReportFigure("profiles", caption, pd.concat(panels.values(), ignore_index=True), figure)


def shown_target(rows: pd.DataFrame) -> str | None:
    """The column of the highest target that half of all runs reach; None if there is none."""
    shares = {str(name): float(rows[name].notna().mean()) for name in rows if str(name).startswith("rounds_to_")}
    reached = [name for name, share in shares.items() if share >= _REACHED]
    return max(reached, key=lambda name: float(name.removeprefix("rounds_to_")), default=None)


def area_order(profile: pd.DataFrame, methods: tuple[str, ...]) -> list[str]:
    """The methods by the area under their profile, the largest first."""
    end = float(profile["distance"].max())
    steps = profile.groupby("method")
    areas = {
        method: float(
            (np.diff([0.0, *steps.get_group(method)["share"]]) * (end - steps.get_group(method)["distance"])).sum()
        )
        if method in steps.groups
        else 0.0
        for method in methods
    }
    return sorted(methods, key=lambda method: -areas[method])


def _draw_panel(axes: Axes, profile: pd.DataFrame, looks: Mapping[str, Style], *, ratio: bool) -> None:
    start = 1.0 if ratio else 0.0
    end = _end(profile, list(looks), start, ratio=ratio)
    for method, steps in profile.groupby("method", sort=False):
        x = np.concatenate([[start], steps["distance"], [max(end, float(steps["distance"].max()))]])
        y = np.concatenate([[0.0], steps["share"], [steps["share"].iloc[-1]]])
        look = looks.get(str(method))
        if look is None:
            axes.step(x, y, where="post", color=OTHER, linewidth=0.5, alpha=0.7)
        else:
            axes.step(x, y, where="post", color=look.colour, linestyle=look.dashes, zorder=3, linewidth=1.5)
    if ratio:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis, start, end)
    axes.set_xlim(start, end)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1))


def _end(profile: pd.DataFrame, named: list[str], start: float, *, ratio: bool) -> float:
    """Where the axis ends: where the named methods have most of their share; at most at ten times the least cost."""
    reached = profile[profile["method"].isin(named)]
    enough = reached[reached["share"] >= _SHARE * reached.groupby("method")["share"].transform("max")]
    end = float(enough.groupby("method")["distance"].min().max()) if len(enough) else start + 1.0
    return min(max(1.05 * end, start * 1.1 + 0.1), _FARTHEST_COST) if ratio else max(1.05 * end, 0.1)
