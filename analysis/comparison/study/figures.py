"""The figures of a study: correlations with intervals, measures against results, and heat maps of both coefficients."""

import textwrap
from collections.abc import Iterator

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.comparison.study.configurations import AXES, CONFIGURATION, perturbation
from fedflat.analysis.comparison.study.granulated import OVERALL
from fedflat.analysis.comparison.study.information import K
from fedflat.analysis.comparison.study.levels import ALL, BETWEEN, LEVELS, WITHIN
from fedflat.analysis.comparison.study.measures import FLATNESS, NAMES, RESULTS
from fedflat.analysis.comparison.study.study import EVERY, FITTED, POOLED, Study
from fedflat.analysis.comparison.study.tables import INTERVALS, ORACLE, SIGNS, heading, information_heading, which_runs
from fedflat.analysis.figures.base import LEGEND, Body, figure_style, legend_columns, new_figure
from fedflat.analysis.figures.palette import hue
from fedflat.analysis.layouts.captions import Caption
from fedflat.bench.experiments.address import IDS

_WIDE = 4.5
_LOOKS = {BETWEEN: ("#0072B2", "o", -0.24), WITHIN: ("#D55E00", "s", 0.0), ALL: ("#555555", "D", 0.24)}
"""Colour, marker and place of each level within its row."""
_ROW = 0.26
_MOST_WITH_NUMBERS = 7
"""Cells of a heat map with more columns have smaller numbers."""
_PLAIN = 20
"""Logarithmic axes whose ends have a smaller ratio show plain numbers."""


def figures(study: Study, width: float) -> Iterator[ReportFigure]:
    """All figures; `width` in inches."""
    with figure_style():
        yield _correlations(study, EVERY, width)
        if study.has_fitted:
            yield _correlations(study, FITTED, width)
        for result in RESULTS:
            yield _scatter(study, result, width)
        yield _granulated(study, width)
        yield _information(study, width)


def _correlations(study: Study, subset: str, width: float) -> ReportFigure:
    """A panel per result; a row per measure, with a point and an interval for each level."""
    frame = study.rows(study.correlations, runs=subset, setting=POOLED, given="")
    measures = [name for name in NAMES if name in set(frame["measure"])]
    side = len(RESULTS) if width >= _WIDE else 1
    figure, body = new_figure(width, len(RESULTS) // side * (_ROW * len(measures) + 0.5) + 0.3)
    grid = body.subplots(len(RESULTS) // side, side, sharey=True, sharex=True, squeeze=False)
    for axes, result in zip(grid.flat, RESULTS, strict=True):
        for level, (colour, marker, offset) in _LOOKS.items():
            rows = study.rows(frame, result=result, level=level).set_index("measure").reindex(measures)
            places = np.arange(len(measures)) + offset
            axes.hlines(places, rows["low"], rows["high"], color=colour, linewidth=1.1)
            axes.plot(rows["tau"], places, marker, color=colour, markersize=3.6)
        axes.axvline(0, color="#777777", linewidth=0.8, zorder=1)
        axes.axhline(sum(name in FLATNESS for name in measures) - 0.5, color="#777777", linewidth=0.6, dashes=(3, 2))
        axes.set_xlim(-1.05, 1.05)
        axes.set_xticks([-1, -0.5, 0, 0.5, 1])
        axes.set_title(f"τ with the {RESULTS[result]}")
        axes.grid(visible=False, axis="y")
    grid[0, 0].set_yticks(range(len(measures)), [_symbols(NAMES[name]) for name in measures])
    grid[0, 0].set_ylim(len(measures) - 0.5, -0.5)
    drawn = set(frame.loc[frame["tau"].notna(), "level"])
    looks = {LEVELS[level]: look for level, look in _LOOKS.items() if level in drawn}
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=3.6, linewidth=1.1, label=name)
        for name, (colour, marker, _) in looks.items()
    ]
    _legend(body, handles, width)
    of_runs = " of methods that fit" if subset == FITTED else ""
    caption = Caption.of(
        f"Rank correlation of flatness with results{', fitted methods' if subset == FITTED else ''}",
        f"Kendall's τ_b of each measure{of_runs} with the results, as means over settings. Bars: 95 % intervals.",
        [*SIGNS.values(), f"{INTERVALS}.", "Below the dashed line: measures for reference.", ORACLE, which_runs(study)],
    )
    return ReportFigure(f"correlation{'_fitted' if subset == FITTED else ''}", caption, frame, figure)


def _scatter(study: Study, result: str, width: float) -> ReportFigure:
    """A row of panels per setting, a panel per measure: methods, and small points for their runs."""
    runs = study.runs[np.isfinite(study.runs[result].astype(float))]
    of_runs = zip(runs["configuration"], runs["method"], strict=True)
    runs = runs.assign(perturbation=[perturbation(*pair) for pair in of_runs])
    means = runs.groupby([*CONFIGURATION, "perturbation"], as_index=False, sort=False)[[*study.measures, result]].mean()
    settings = list(dict.fromkeys(means[IDS[:3]].itertuples(index=False, name=None)))
    per_setting = -(-len(study.measures) // (6 if width >= _WIDE else 3))
    side = -(-len(study.measures) // per_setting)
    figure, body = new_figure(width, len(settings) * per_setting * (1.25 if per_setting == 1 else 0.95) + 0.5)
    grid = body.subplots(len(settings) * per_setting, side, squeeze=False)
    for number, setting in enumerate(settings):
        panels = grid[number * per_setting : (number + 1) * per_setting].ravel()
        for axes in panels[len(study.measures) :]:
            axes.set_visible(False)
        for place, (axes, measure) in enumerate(zip(panels, study.measures, strict=False)):
            for table, size, alpha in ((runs, 1.2, 0.35), (means, 3.2, 1.0)):
                chosen = table[(table[IDS[:3]] == list(setting)).all(axis=1)]
                for name, group in chosen.groupby("perturbation", sort=False):
                    axes.plot(group[measure], group[result], "o", color=hue(str(name)), markersize=size, alpha=alpha,
                              markeredgewidth=0)  # fmt: skip
            _scale(axes, runs[measure])
            if place % side:
                axes.tick_params(labelleft=False)
            else:
                axes.set_ylabel("\n".join(textwrap.wrap(heading("/".join(setting)), 18)), fontsize=7)
            if number == 0 or per_setting > 1:
                axes.set_title(_symbols(NAMES[measure]), fontsize=7.5)
        low, high = zip(*(axes.get_ylim() for axes in panels[: len(study.measures)]), strict=True)
        for axes in panels:
            axes.set_ylim(min(low), max(high))
    by_hue: dict[str, list[str]] = {}
    for name in dict.fromkeys(means["perturbation"]):
        by_hue.setdefault(hue(name), []).append(_named(name))
    handles = [
        Line2D([], [], linestyle="", marker="o", markersize=3.5, color=colour, label=", ".join(names))
        for colour, names in by_hue.items()
    ]
    _legend(body, handles, width)
    caption = Caption.of(
        f"Flatness and {RESULTS[result]}",
        f"{RESULTS[result].capitalize()} ({'%' if result == 'test_accuracy' else 'points'}) against each measure, in "
        "each setting.",
        ["Large points: means of a method over seeds; small points: its runs.", "Colour: the method's perturbation.",
         "Lower measures are flatter."],
    )  # fmt: skip
    return ReportFigure(f"scatter_{result}", caption, means, figure)


def _granulated(study: Study, width: float) -> ReportFigure:
    """ψ of each measure and axis, and Ψ."""
    frame = study.rows(study.granulated, runs=EVERY)
    axes = [axis for axis in (OVERALL, *AXES) if axis in set(frame["axis"])]
    caption = Caption.of(
        "Flatness and results along each axis",
        "Granulated Kendall coefficient (Jiang et al., 2020): ψ of each axis, and Ψ, their mean.",
        [*(sign.replace("τ", "ψ") for sign in SIGNS.values()), ORACLE],
    )
    names = {axis: AXES.get(axis, axis) for axis in axes}
    return _heat_maps(study, ("granulated", caption, frame), "tau", names, width, (-1, 1, "RdBu_r", "+.2f"))


def _information(study: Study, width: float) -> ReportFigure:
    """The information of each measure with each axis known, and K."""
    frame = study.rows(study.information, runs=EVERY)
    axes = [axis for axis in (K, "", *AXES) if axis in set(frame["axis"])]
    caption = Caption.of(
        "What flatness says about results",
        "Normalised conditional mutual information (Jiang et al., 2020): nothing known, one axis known, and K, the "
        "minimum over all sets of at most two axes.",
        ["0: nothing; 1: the whole order.", "Random: what random numbers seem to say, a mean over 20 draws.", ORACLE],
    )
    names = {axis: information_heading(axis) for axis in axes}
    return _heat_maps(study, ("information", caption, frame), "value", names, width, (0, 1, "mako_r", ".2f"))


def _heat_maps(
    study: Study,
    what: tuple[str, Caption, pd.DataFrame],
    column: str,
    names: dict[str, str],
    width: float,
    scale: tuple[float, float, str, str],
) -> ReportFigure:
    """A heat map per result, of measures × axes. `scale`: its ends, its colours, and the form of its numbers."""
    name, caption, frame = what
    low, high, colours, form = scale
    measures = [measure for measure in NAMES if measure in set(frame["measure"])]
    side = len(RESULTS) if width >= _WIDE else 1
    figure, body = new_figure(width, len(RESULTS) // side * (0.19 * len(measures) + 1.05))
    grid = body.subplots(len(RESULTS) // side, side, squeeze=False)
    small = len(names) > _MOST_WITH_NUMBERS
    for axes, result in zip(grid.flat, RESULTS, strict=True):
        wide = study.rows(frame, result=result).pivot(index="measure", columns="axis", values=column)
        wide = wide.reindex(index=measures, columns=list(names)).rename(
            index={measure: _symbols(NAMES[measure]) for measure in measures}, columns=names
        )
        texts = wide.map(lambda value: "" if np.isnan(value) else _short(value, form))
        seaborn.heatmap(
            wide, ax=axes, vmin=low, vmax=high, cmap=colours, cbar=False, linewidths=0.6, linecolor="white",
            annot=texts, fmt="", annot_kws={"size": 5 if small else 6},
        )  # fmt: skip
        axes.axhline(sum(measure in FLATNESS for measure in measures), color="#333333", linewidth=0.8)
        axes.axvline(1, color="#333333", linewidth=0.8)
        axes.set_title(RESULTS[result].capitalize())
        axes.set(xlabel="", ylabel="")
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_xticklabels(axes.get_xticklabels(), rotation=45, ha="right", rotation_mode="anchor")
        axes.tick_params(axis="y", rotation=0)
    for axes in grid[:, 1:].flat:
        axes.set_yticks([])
    for axes in grid[:-1].flat:
        axes.set_xticks([])
    return ReportFigure(name, caption, frame, figure)


def _short(value: float, form: str) -> str:
    """0.26 as .26, with a minus sign: cells are narrow."""
    return format(value + 0.0, form).replace("-", "−").replace("0.", ".")


def _scale(axes: Axes, values: pd.Series) -> None:
    """A logarithmic x axis for positive values."""
    known = values[np.isfinite(values)]
    axes.tick_params(labelsize=6)
    if known.min() <= 0 or known.max() < 3 * known.min():
        axes.xaxis.set_major_locator(MaxNLocator(3))
        return
    axes.set_xscale("log")
    if known.max() < _PLAIN * known.min():
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        axes.xaxis.set_major_locator(LogLocator(numticks=3))
    axes.xaxis.set_minor_locator(NullLocator())


def _symbols(name: str) -> str:
    return name.replace("λ_max", r"$\lambda_{\max}$")


def _named(name: str) -> str:
    if name == "none":
        return "no perturbation"
    *words, last = name.split("_")
    return " ".join([*words, last.upper()])


def _legend(body: Body, handles: list[Line2D], width: float) -> None:
    labels = [str(handle.get_label()) for handle in handles]
    body.legend(handles=handles, loc="outside lower center", ncols=legend_columns(labels, width), **LEGEND)
