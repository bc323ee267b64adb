"""Panels of lines with bands, one panel per setting and one line per method, for several kinds of figures."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Body, PanelLayout, add_legend, draw_curve
from analysis.figures.palette import styles
from analysis.layouts.tidy import Tidy, of_cell
from bench.experiments.address import IDS, CellAddress


def spread(frame: pd.DataFrame, x: str, column: str) -> pd.DataFrame:
    """Mean and sample standard deviation of a column over all rows of a cell with the same x: columns `mean`, `std`."""
    return frame.groupby([*IDS, x], sort=True)[column].agg(["mean", "std"]).reset_index()


def draw_lines(
    body: Body,
    layout: PanelLayout,
    tidy: Tidy,
    lines: pd.DataFrame,
    x: str,
    *,
    columns: int,
    within: tuple[float, float] = (-np.inf, np.inf),
    offset: Mapping[str, float] | None = None,
) -> list[Axes]:
    """The panels of a layout, `columns` side by side, on shared axes, and their legend.

    `lines` has the columns that name a cell, x, `mean` and `std`; `within` and `offset` (by method): see `draw_curve`.
    """
    looks = styles(tidy.experiment, layout.methods)
    grid = body.subplots(-(-len(layout.panels) // columns), columns, sharex=True, sharey=True, squeeze=False)
    drawn = list(grid.flat[: len(layout.panels)])
    for axes in grid.flat[len(layout.panels) :]:
        axes.set_visible(False)
    for axes, panel in zip(drawn, layout.panels, strict=True):
        setting = panel.setting(tidy.experiment)
        axes.set_title(panel.heading(setting))
        for method in layout.methods:
            line = of_cell(lines, CellAddress(setting, method))
            draw_curve(
                axes, line[x], line["mean"], line["std"], looks[method], within, offset[method] if offset else 0.0
            )
    add_legend(body, lines, layout, tidy.experiment)
    return drawn


def label_outer(drawn: list[Axes], columns: int, x: str, y: str) -> None:
    """Label the lowest panel of each column and the first of each row."""
    for axes in drawn[-columns:]:
        axes.set_xlabel(x)
        axes.tick_params(labelbottom=True)
    for axes in drawn[::columns]:
        axes.set_ylabel(y)
