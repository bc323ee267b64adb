"""Methods as points: results against costs, with the Pareto front, and against the flatness of their models."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.report.looks import OTHER, OWN
from fedflat.analysis.comparison.report.tables import metric_words
from fedflat.analysis.comparison.report.words import lost_word
from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.comparison.statistics.costs import REFERENCE, costs, stored_costs
from fedflat.analysis.comparison.statistics.flatness import correlations, flatness, stored_measures
from fedflat.analysis.figures.base import figure_style, most_side_by_side, new_figure, plain_numbers
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.run_columns import column_name

_WIDE = 4.5
_FRONT = "#0072B2"
_COST_WORDS = {"communicated_mb": "traffic", "gradients": "gradients"}


def draw_costs(comparison: Comparison, width: float) -> ReportFigure:
    """A panel of traffic and one of gradients; the line joins the methods that no other one dominates."""
    frame = costs(comparison.rows, comparison.scores)
    shown = stored_costs(comparison.rows)
    relative = REFERENCE in comparison.scores.methods
    sign = 1 if comparison.better == "higher" else -1
    with figure_style():
        side = len(shown) if width >= _WIDE else 1
        down = -(-len(shown) // side)
        figure, body = new_figure(width, down * 2.6)
        grid = body.subplots(down, side, sharey=True, squeeze=False)
        for axes, cost in zip(grid.flat, shown, strict=True):
            column = f"{cost}_relative" if relative else cost
            known = frame[np.isfinite(frame[column]) & frame["mean"].notna()]
            front = known[known[f"front_{cost}"]].sort_values([column, "mean"], ascending=[True, sign > 0])
            axes.step(front[column], front["mean"], where="post", color=_FRONT, linewidth=1, zorder=1)
            _points(axes, known[column], known["mean"], known["method"], comparison, set(front["method"]))
            axes.set_xscale("log")
            if len(known):
                plain_numbers(axes.xaxis, float(known[column].min()), float(known[column].max()))
            axes.margins(x=0.15, y=0.08)
            words = _COST_WORDS[cost].capitalize()
            axes.set_xlabel(f"{words}, relative to {comparison.titles[REFERENCE]}" if relative else f"{words} of a run")
        for axes in grid[:, 0]:
            axes.set_ylabel(metric_words(comparison).capitalize())
    caption = Caption.of(
        "Results and costs",
        f"{metric_words(comparison).capitalize()} against what a whole run costs, as means over settings and seeds.",
        ["Line: the Pareto front; no other method is at least as good as its methods, and costs at most as much.",
         f"Black: {comparison.titles[comparison.method]}.", *_notes_on_lost(comparison, frame)],
    )  # fmt: skip
    return ReportFigure("costs", caption, frame, figure)


def draw_flatness(comparison: Comparison, width: float) -> ReportFigure:
    """One panel per stored measure; its title has the rank correlation over methods."""
    frame = flatness(comparison.rows, comparison.scores)
    measures = stored_measures(comparison.rows)
    found = correlations(frame).set_index("measure")
    with figure_style():
        side = most_side_by_side(len(measures), 3) if width >= _WIDE else 1
        down = -(-len(measures) // side)
        figure, body = new_figure(width, down * 2.3)
        grid = body.subplots(down, side, sharey=True, squeeze=False)
        for axes in grid.flat[len(measures) :]:
            axes.set_visible(False)
        for axes, name in zip(grid.flat, measures, strict=False):
            known = frame[np.isfinite(frame[name]) & frame["mean"].notna()]
            _points(axes, known[name], known["mean"], known["method"], comparison, set())
            if len(known) and (known[name] > 0).all():
                axes.set_xscale("log")
                plain_numbers(axes.xaxis, float(known[name].min()), float(known[name].max()))
            axes.set_xlabel(column_name(name).replace("λ_max", r"$\lambda_{\max}$"))
            axes.set_title(f"Kendall's τ = {float(found['tau'][name]):+.2f}".replace("-", "−"))
        for axes in grid[:, 0]:
            axes.set_ylabel(metric_words(comparison).capitalize())
    caption = Caption.of(
        "Flatness and results",
        f"{metric_words(comparison).capitalize()} against flatness (lower: flatter), as means over settings and seeds.",
        [
            f"Black: {comparison.titles[comparison.method]}.",
            "Kendall's τ: rank correlation over methods.",
            *_notes_on_lost(comparison, frame),
        ],
    )
    return ReportFigure("flatness", caption, frame, figure)


def _notes_on_lost(comparison: Comparison, frame: pd.DataFrame) -> list[str]:
    """Which methods have no mean, and how many runs the means of others lack."""
    word = lost_word(comparison)
    without, partly = list[str](), list[str]()
    for row in frame[frame["missing"] > 0].to_dict("records"):
        title = comparison.titles[row["method"]]
        if math.isnan(row["mean"]):
            without.append(title)
        else:
            partly.append(f"{title} ({row['missing']})")
    texts = {
        f"Not shown, because all their runs in a setting {word}: {', '.join(without)}.": without,
        f"Means without the runs that {word}: {', '.join(partly)}.": partly,
    }
    return [text for text, methods in texts.items() if methods]


def _points(
    axes: Axes, x: pd.Series, y: pd.Series, methods: pd.Series, comparison: Comparison, front: set[str]
) -> None:
    """Points; those of the front and the compared method have their names."""
    for one_x, one_y, method in zip(x, y, methods, strict=True):
        own = method == comparison.method
        colour = OWN if own else _FRONT if method in front else OTHER
        axes.plot(
            one_x, one_y, "D" if own else "o", color=colour, markersize=4.5 if own else 3.5, zorder=3 if own else 2
        )
        if own or method in front:
            weight = "bold" if own else "normal"
            axes.annotate(
                comparison.titles[method], (one_x, one_y), (4, 4), textcoords="offset points", fontsize=7,
                color=colour, fontweight=weight,
            )  # fmt: skip
