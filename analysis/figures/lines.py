"""Panels of lines with bands, one line per method or for other cells, for several kinds of figures."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedflat.analysis.figures.base import (
    BandsLayout,
    Body,
    Panel,
    draw_curve,
    draw_legend,
    grid_panels,
    most_side_by_side,
)
from fedflat.analysis.figures.palette import Style, line_look, styles
from fedflat.analysis.layouts.grid import PANELS_OF_GRID, GridPart
from fedflat.analysis.layouts.layout import Selection, existing_cell
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles
from fedflat.bench.experiments.address import IDS, CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError, unknown


class Line(Selection):
    """A line that stands for a method in a setting; its title is shown in the legend."""

    method: str = Field(description="a method of the figure")
    title: str = Field(description="its name in the legend")


class LinesPanel(Panel):
    """A panel with one line per method, or with `lines`, whose settings are within the panel's selection."""

    lines: tuple[Line, ...] = Field(default=(), description="lines instead of one per method; empty: one per method")

    def with_lines_of(self, methods: Collection[str]) -> Self:
        """The panel without lines of other methods; a `UserError` if none of its lines remains."""
        lines = tuple(line for line in self.lines if line.method in methods)
        if self.lines and not lines:
            raise UserError(f"the experiment has no line of the panel: {', '.join(line.title for line in self.lines)}")
        return self.model_copy(update={"lines": lines})


class Curve(NamedTuple):
    """One curve of a panel; `offset` shifts a single point (see `draw_curve`)."""

    cell: CellAddress
    title: str
    look: Style
    offset: float


class LinesLayout(BandsLayout):
    """A figure whose panels have one line per method, or lines with titles of their own.

    Lines for different methods look as in all figures. If a method has several lines, colours follow their order.
    """

    @property
    @abstractmethod
    def line_panels(self) -> tuple[LinesPanel, ...]:
        """The panels, in order."""

    @model_validator(mode="after")
    def _lines_of_methods(self) -> "LinesLayout":
        lines = [line for panel in self.line_panels for line in panel.lines]
        for line in lines:
            if line.method not in self.methods:
                raise unknown("method of the figure", line.method, self.methods)
        if lines and not all(panel.lines for panel in self.line_panels):
            raise UserError("either all panels or none must have lines")
        return self

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings of all lines, each once."""
        panels = self.line_panels
        lines = (panel.narrowed(line) for panel in panels for line in panel.lines or (Selection(),))
        return tuple(dict.fromkeys(selection.setting(experiment) for selection in lines))

    def cells(self, experiment: Experiment) -> tuple[CellAddress, ...]:
        """The cells of all lines that the experiment has; a `UserError` names a method that a line's part lacks."""
        if not any(panel.lines for panel in self.line_panels):
            return super().cells(experiment)
        cells = dict.fromkeys(curve.cell for panel in self.line_panels for curve in self.curves(panel, experiment))
        return tuple(cell for cell in cells if experiment.has_cell(cell))

    def curves(self, panel: LinesPanel, experiment: Experiment) -> Iterator[Curve]:
        """The curves of a panel, in order."""
        looks = styles(experiment, self.methods)
        if not panel.lines:
            names, places = method_titles(experiment), offsets(self.methods)
            setting = panel.setting(experiment)
            for method in self.methods:
                yield Curve(CellAddress(setting, method), names[method], looks[method], places[method])
            return
        titles = list(dict.fromkeys(line.title for panel in self.line_panels for line in panel.lines))
        places, alone = offsets(titles), len({line.method for line in panel.lines}) == len(panel.lines)
        for line in panel.lines:
            cell = existing_cell(panel.narrowed(line).setting(experiment), line.method, experiment)
            look = looks[line.method] if alone else line_look(titles.index(line.title))
            yield Curve(cell, line.title, look, places[line.title])

    def most_lines(self, frame: pd.DataFrame) -> int:
        """The largest number of lines in a panel."""
        of_panels = [len(panel.lines) for panel in self.line_panels]
        return max(of_panels) if any(of_panels) else super().most_lines(frame)

    def panel_title(self, panel: LinesPanel, experiment: Experiment) -> str:
        """The panel's heading; that of a panel with lines is only its own title."""
        return panel.title or "" if panel.lines else panel.heading(panel.setting(experiment))


class LinePanelsLayout(LinesLayout):
    """A figure with the panels that its file lists, or those of the experiment's grid."""

    panels: tuple[LinesPanel, ...] = Field(default=(), description="the panels; empty: those of `grid`")
    grid: GridPart = Field(default="partitions", description=PANELS_OF_GRID)

    @property
    def line_panels(self) -> tuple[LinesPanel, ...]:
        """The panels of its file."""
        return self.panels

    def _over_grid(self, experiment: Experiment) -> Self:
        if self.panels:
            return self.model_copy(update={"panels": tuple(panel.with_lines_of(self.methods) for panel in self.panels)})
        panels = grid_panels(LinesPanel, experiment, self.grid)
        changes: dict[str, Any] = {"panels": panels}
        if "columns" in type(self).model_fields and "columns" not in self.model_fields_set:
            partitions = max(len(part.grid.partition) for part in experiment.resolved_parts.values())
            changes["columns"] = most_side_by_side(partitions if self.grid == "all" else len(panels))
        return self.model_copy(update=changes)


def spread(frame: pd.DataFrame, x: str, column: str) -> pd.DataFrame:
    """Mean and sample standard deviation of a column over all rows of a cell with the same x: columns `mean`, `std`."""
    return frame.groupby([*IDS, x], sort=True)[column].agg(["mean", "std"]).reset_index()


def draw_lines(
    body: Body,
    layout: LinePanelsLayout,
    tidy: Tidy,
    lines: pd.DataFrame,
    x: str,
    *,
    columns: int,
    within: tuple[float, float] = (-np.inf, np.inf),
    side_by_side: bool = False,
) -> list[Axes]:
    """The panels of a layout, `columns` side by side, on shared axes, and their legend.

    `lines` has the columns that name a cell, x, `mean` and `std`. `within`: see `draw_curve`; `side_by_side`: single
    points hide no other.
    """
    grid = body.subplots(-(-len(layout.panels) // columns), columns, sharex=True, sharey=True, squeeze=False)
    drawn = list(grid.flat[: len(layout.panels)])
    for axes in grid.flat[len(layout.panels) :]:
        axes.set_visible(False)
    band = layout.has_bands(lines)
    for axes, panel in zip(drawn, layout.panels, strict=True):
        axes.set_title(layout.panel_title(panel, tidy.experiment))
        for curve in layout.curves(panel, tidy.experiment):
            line = of_cell(lines, curve.cell)
            offset = curve.offset if side_by_side else 0.0
            draw_curve(axes, line[x], line["mean"], line["std"], curve.look, within, offset, band=band)
    draw_lines_legend(body, layout, tidy, lines)
    return drawn


def with_coinciding_note(
    draw: Callable[[str], tuple[Figure, list[Axes]]],
    layout: LinePanelsLayout,
    tidy: Tidy,
    lines: pd.DataFrame,
    x: str,
) -> Figure:
    """The figure that `draw` makes, with a note about lines that cover each other, if there are any.

    Only the drawn axes show which lines do; so the figure is drawn again with the note, which makes it higher. `draw`
    takes the note and returns the figure and the axes of its panels; `lines` as for `draw_lines`.
    """
    figure, drawn = draw("")
    note = _coinciding_note(layout, tidy, lines, x, drawn)
    return draw(note)[0] if note else figure


def _coinciding_note(layout: LinePanelsLayout, tidy: Tidy, lines: pd.DataFrame, x: str, drawn: Sequence[Axes]) -> str:
    """A note about lines that cover each other, because they differ by less than a line's width; empty if none do.

    For example 'lines that coincide, within their width: FedAvg and FedProx (Dirichlet 0.1, 4 of 20 clients)'.
    """
    where: dict[str, list[str]] = {}
    for axes, panel in zip(drawn, layout.line_panels, strict=True):
        curves = {curve.title: of_cell(lines, curve.cell) for curve in layout.curves(panel, tidy.experiment)}
        places = {title: _in_axes(axes, line[x], line["mean"]) for title, line in curves.items() if len(line) > 1}
        groups: list[list[str]] = []
        for title, points in places.items():
            group = next((group for group in groups if _cover(places[group[0]], points)), None)
            if group is None:
                groups.append([title])
            else:
                group.append(title)
        for group in groups:
            if len(group) > 1:
                where.setdefault(" and ".join(group), []).append(layout.panel_title(panel, tidy.experiment))
    everywhere = len(layout.line_panels)
    parts = [group if len(p) == everywhere else f"{group} ({' and '.join(p)})" for group, p in where.items()]
    return f"lines that coincide, within their width: {'; '.join(parts)}" if parts else ""


_LINE_WIDTH = 0.01
"""The width of a line, relative to the height of a panel of two inches."""


def _in_axes(axes: Axes, x: pd.Series, y: pd.Series) -> NDArray[np.float64]:
    """Points `[N, 2]` where the axes show them: from 0, the lower or left end, to 1; points beyond lie at the ends."""
    axes.get_ylim()  # sets limits that follow the data
    points = (axes.transData - axes.transAxes).transform(np.column_stack([x, y]))
    return np.asarray(np.clip(points, 0, 1))


def _cover(one: NDArray[np.float64], another: NDArray[np.float64]) -> bool:
    """Whether lines through these points cover each other, where the axes show them."""
    if one.shape != another.shape or not np.array_equal(one[:, 0], another[:, 0]):
        return False
    heights = np.column_stack([one[:, 1], another[:, 1]])
    is_shown = ((heights > 0) & (heights < 1)).any()
    return bool(is_shown and (np.abs(heights[:, 0] - heights[:, 1]) <= _LINE_WIDTH).all())


def draw_lines_legend(body: Body, layout: LinesLayout, tidy: Tidy, lines: pd.DataFrame) -> None:
    """One legend below all panels, of the curves that have rows in `lines`."""
    curves = [curve for panel in layout.line_panels for curve in layout.curves(panel, tidy.experiment)]
    draw_legend(body, {c.title: c.look for c in curves if not of_cell(lines, c.cell).empty}, layout.width)


def label_outer(drawn: list[Axes], columns: int, x: str, y: str) -> None:
    """Label the lowest panel of each column and the first of each row."""
    for axes in drawn[-columns:]:
        axes.set_xlabel(x)
        axes.tick_params(labelbottom=True)
    for axes in drawn[::columns]:
        axes.set_ylabel(y)


def smoothing(values: str, window: int, every: int) -> str:
    """How curves are smoothed and thinned: a sentence for the caption, or empty. `values`: what is averaged."""
    smoothed = f" Each run's values are means of {window} neighbouring {values}" if window > 1 else ""
    thinned = f"every {every} rounds" if every > 1 else ""
    between = ", " if smoothed and thinned else " Drawn " if thinned else ""
    return f"{smoothed}{between}{thinned}." if smoothed or thinned else ""


def offsets(methods: Sequence[str]) -> dict[str, float]:
    """Offsets that place the methods' single points side by side within a round."""
    return dict(zip(methods, np.linspace(-0.2, 0.2, len(methods) + 2)[1:-1].tolist(), strict=True))
