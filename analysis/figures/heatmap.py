"""Heat maps: how many images of each class every client holds, and a value of each client over the rounds."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize, PowerNorm
from numpy.typing import NDArray

from fedflat.analysis.figures.base import Body, most_side_by_side, whole_numbers

_COLOURS = "mako_r"  # counts differ in lightness alone, so that they are readable in print and by the colour-blind
_EMPTY = "white"
_MOST_CELLS = 40
"""With more rows or columns, cells are too small for numbers and for lines between them."""


_WIDEST = 0.4
"""Inches of the widest cell with a class of a client."""


def draw_counts(
    body: Body, tables: Sequence[pd.DataFrame], headings: Sequence[str], *, numbers: bool = True
) -> list[Axes]:
    """One panel per table of counts `[clients, classes]`, all of the same shape, with one colour scale and bar.

    Few clients are rows, in panels side by side; many clients are columns, in panels one below the other.
    """
    wide = is_wide(tables[0])
    columns = 1 if wide else most_side_by_side(len(tables))
    grid = body.subplots(-(-len(tables) // columns), columns, sharex=wide, sharey=not wide, squeeze=False)
    for axes in grid.flat[len(tables) :]:
        axes.set_visible(False)
    largest = max(int(table.to_numpy().max()) for table in tables)
    for axes, table, heading in zip(grid.flat, tables, headings, strict=False):
        _draw(axes, table.T if wide else table, largest, numbers=numbers)
        axes.set_title(heading)
    for axes in grid[-1]:
        axes.set_xlabel("Client" if wide else "Class")
    for axes in grid[:, 0]:
        axes.set_ylabel("Class" if wide else "Client")
    bar = body.colorbar(grid.flat[0].collections[0], ax=list(grid.flat), aspect=35 if not wide else 20, pad=0.01)
    small = max(tables[0].shape) <= _MOST_CELLS
    bar.set_label("Training images" if small else "Training images\n(square-root scale)")
    bar.outline.set_visible(False)
    return list(grid.flat[: len(tables)])


def body_height(table: pd.DataFrame, panels: int) -> float:
    """Inches that panels of such tables need; bounded for any number of clients and classes."""
    if is_wide(table):
        return panels * (0.55 + min(max(0.145 * table.shape[1], 1.3), 2.6)) + 0.2
    return -(-panels // most_side_by_side(panels)) * min(max(0.5 + 0.165 * len(table), 1.6), 9)


def body_width(table: pd.DataFrame, panels: int, most: float) -> float:
    """Inches that panels of such tables need, `most` at most: cells are not much wider than high."""
    if is_wide(table):
        return most
    side_by_side = most_side_by_side(panels)
    return min(most, side_by_side * (_WIDEST * table.shape[1] + 0.2) + 1.2)


def is_wide(table: pd.DataFrame) -> bool:
    """Whether clients are columns, because they are too many for rows."""
    return len(table) > _MOST_CELLS


def _draw(axes: Axes, table: pd.DataFrame, largest: int, *, numbers: bool) -> None:
    small = max(table.shape) <= _MOST_CELLS
    seaborn.heatmap(
        table,
        ax=axes,
        mask=table == 0,
        cmap=_COLOURS,
        # Without numbers, few images must be distinguishable from none: the colour scale is that of the square root.
        vmin=0,
        vmax=largest,
        norm=PowerNorm(1.0 if small else 0.5, 0, largest),
        cbar=False,
        annot=numbers and small,
        fmt="d",
        annot_kws={"fontsize": 7},
        linewidths=0.5 if small else 0,
        linecolor=_EMPTY,
        rasterized=not small,
        xticklabels=False,
        yticklabels=False,
    )
    _number(axes.xaxis, table.columns)
    _number(axes.yaxis, table.index)
    axes.set(xlabel="", ylabel="")
    axes.tick_params(length=0, rotation=0)
    axes.grid(False)
    if not small:  # without lines between cells, the panel's edge would not be visible next to empty cells
        for spine in axes.spines.values():
            spine.set(visible=True, color="#999999", linewidth=0.6)


def _number(axis: Axis, names: pd.Index) -> None:
    """Label as many cells as are readable, in their middle."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, len(names)) if len(names) <= 20 * step)
    places = np.arange(0, len(names), step)
    axis.set_ticks(places + 0.5, [str(name) for name in names[places]])


def draw_rounds(axes: Axes, table: pd.DataFrame, norm: Normalize, *, even: bool = False) -> QuadMesh:
    """A map of values `[rows, rounds]`, with rounds from left to right and rows from top to bottom.

    The columns of neighbouring rounds meet half way between them. With `even`, all columns are equally wide and
    labelled.
    """
    rounds = table.columns.to_numpy(float)
    edges = np.arange(len(rounds) + 1) if even else _edges(rounds)
    rows = np.arange(len(table) + 1) - 0.5
    mesh = axes.pcolormesh(edges, rows, table.to_numpy(float), cmap="viridis", norm=norm, rasterized=True)
    axes.grid(visible=False)
    axes.set_ylim(len(table) - 0.5, -0.5)
    whole_numbers(axes.yaxis)
    if even:
        _number(axes.xaxis, table.columns)
        axes.tick_params(axis="x", length=0, rotation=40)
    else:
        whole_numbers(axes.xaxis)
    return mesh


def _edges(rounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The edges of the columns of rounds: half way between neighbouring rounds."""
    if len(rounds) == 1:
        return np.array([rounds[0] - 0.5, rounds[0] + 0.5])
    between = (rounds[1:] + rounds[:-1]) / 2
    return np.concatenate([[2 * rounds[0] - between[0]], between, [2 * rounds[-1] - between[-1]]])
