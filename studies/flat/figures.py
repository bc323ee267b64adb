"""The figure of a benchmark of flatness: what each perturbation adds, with the rows of equal compute."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.flat.pairs import BASE
from fedflat.analysis.comparison.flat.units import SETTING
from fedflat.analysis.comparison.report.looks import COLOURS, ROW
from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.figures.base import LEGEND, figure_style, new_figure
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.experiments.address import Setting
from fedflat.bench.tuning.protocol.schema import Protocol
from studies.flat.tables import factors_text

_LOOKS: tuple[dict[str, Any], ...] = ({"marker": "|", "color": "#777777"}, {"marker": "x", "color": "#777777"})
"""The marks of rows of equal compute."""


def of_pairs(table: pd.DataFrame, protocol: Protocol, width: float) -> Iterator[ReportFigure]:
    """One figure per setting."""
    for setting, rows in table.groupby(SETTING, sort=False):
        with figure_style():
            yield _differences(rows, Setting(*map(str, setting)), protocol, width)


def _differences(rows: pd.DataFrame, setting: Setting, protocol: Protocol, width: float) -> ReportFigure:
    figure, body = new_figure(width, max(ROW * len(rows), 1.2) + 0.85)
    axes = body.subplots(1, 1)
    axes.axvline(0, color="#777777", linewidth=0.8, zorder=1)
    for place, row in enumerate(rows.to_dict("records")):
        colour = COLOURS[row["verdict"]]
        if np.isfinite(row["low"]):
            axes.hlines(place, row["low"], row["high"], color=colour, linewidth=1.2)
        axes.plot(row["difference"], place, marker="o", color=colour, markersize=4, linestyle="")
    named = [name for name in protocol.equal_compute if f"difference_{name}" in rows]
    for name, look in zip(named, _LOOKS, strict=False):
        axes.plot(rows[f"difference_{name}"], range(len(rows)), linestyle="", label=f"base, {name}", **look)
    if named:
        body.legend(loc="outside upper center", ncols=len(named), **LEGEND)
    axes.set_yticks(range(len(rows)), [f"{row['title']} − {row[f'title{BASE}']}" for row in rows.to_dict("records")])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("Difference in test accuracy (points)")
    caption = Caption.of(
        f"What a perturbation adds: {setting_title(setting)}",
        "Test accuracy of each method minus that of its base, paired by tuning seed.",
        ["Bars: 95 % intervals, with at least three tuning seeds.", factors_text(protocol)],
    )
    name = f"pairs_{setting.partition.replace('-', '_').replace('.', '')}"
    return ReportFigure(name, caption, rows, figure)
