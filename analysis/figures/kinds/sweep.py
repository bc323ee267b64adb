"""A run's final value against a swept value: a hyper-parameter, or the heterogeneity of the clients."""

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, model_validator

from fedflat.analysis.figures.base import BandsLayout, draw_curve, draw_legend, new_figure
from fedflat.analysis.figures.kinds.final_values import FinalValuesLayout
from fedflat.analysis.figures.notes import diverged_note, missing_note, stopped_note
from fedflat.analysis.figures.palette import Style, line_look, styles
from fedflat.analysis.layouts.grid import PANELS_OF_GRID, GridPart, grid_settings, part_prefix
from fedflat.analysis.layouts.layout import Selection, existing_cell
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import entry_titles, method_titles, partition_title
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.sweeps import SweptMethod, in_label
from fedflat.bench.input.bounds import Columns
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import Frozen

Scale = Literal["linear", "log", "even"]

_WIDE = 8
"""Swept values that differ by at least this factor are drawn on a log scale."""


class Point(Frozen):
    """A swept value x and its cell, given by a suffix of the method's label and fields of the setting."""

    x: float = Field(examples=[0.1], description="the swept value")
    suffix: str = Field(default="", description="suffix of the method's label in the experiment")
    select: Selection = Field(default=Selection(), description="fields of the setting that belong to the value")


class SweepLine(Frozen):
    """A line through all points of a panel, in a setting of its own; its title is shown in the legend."""

    title: str = Field(description="its name in the legend")
    select: Selection = Field(description="fields of its setting")


class SweepPanel(Frozen):
    """One panel: a line through `points` for each method, and a horizontal line for each method of `levels`.

    A panel with `settings` has one method, and a line for each of its settings instead. A panel with `axis` has a line
    for each method of the experiment that sweeps it, and for each combination of the values of its other sweeps.
    """

    title: str | None = Field(default=None, description="heading; null: none")
    axis: str | None = Field(
        default=None, description="a value that the experiment sweeps, such as rho, instead of points and methods"
    )
    x: str = Field(default="", description="the swept value in words; default: the axis")
    scale: Scale = Field(default="linear", description="scale of the x axis; even: equal distances between points")
    select: Selection = Field(default=Selection(), description="fields of the setting that all points share")
    mean_of: tuple[Selection, ...] = Field(
        default=(), description="further selections; values are means over their settings, seed by seed"
    )
    methods: tuple[str, ...] | None = Field(default=None, description="methods with a line; null: all but levels")
    levels: tuple[str, ...] = Field(default=(), description="methods that do not have the swept value")
    points: tuple[Point, ...] = Field(default=(), description="the points of each line, from left to right")
    settings: tuple[SweepLine, ...] = Field(default=(), description="lines of one method; empty: one line per method")

    @model_validator(mode="after")
    def _points_or_axis(self) -> "SweepPanel":
        if (self.axis is None) != bool(self.points):
            raise UserError("a panel of a sweep needs either points or axis")
        if self.axis is not None and (self.settings or self.mean_of or self.methods is not None):
            raise UserError(f"a panel with axis: {self.axis} does not allow settings, mean_of or methods")
        if self.axis is None and not self.x:
            raise UserError("a panel with points needs x, the swept value in words")
        return self

    @model_validator(mode="after")
    def _ascending(self) -> "SweepPanel":
        xs = [point.x for point in self.points]
        if any(a >= b for a, b in itertools.pairwise(xs)):
            raise UserError(f"points of '{self.x}': x must increase from point to point")
        if self.scale == "log" and xs and xs[0] <= 0:
            raise UserError(f"points of '{self.x}': x = {xs[0]:g} cannot be drawn on a log scale")
        if self.settings and (len(self.methods or ()) != 1 or self.levels):
            raise UserError(f"'{self.x}': a panel with settings must have one method in methods, and no levels")
        return self

    def lines(self, methods: Sequence[str]) -> tuple[str, ...]:
        """The methods that have a line, in the figure's order."""
        if self.methods is None:
            return tuple(method for method in methods if method not in self.levels)
        return tuple(method for method in methods if method in self.methods)

    def ticks(self, experiment: Experiment) -> dict[str, float]:
        """The labels of the x axis, and their places."""
        if self.axis is None:
            numbers = {f"{point.x:g}": point.x for point in self.points}
        else:
            swept = [one.axes[self.axis] for one in experiment.swept.values() if self.axis in one.axes]
            values = {in_label(value): value for value in swept}
            if not all(type(value) in (int, float) for value in values.values()):
                return {label: float(place) for place, label in enumerate(values)}
            numbers = dict(sorted(values.items(), key=lambda item: float(item[1])))
        if self.scale == "even":
            return {label: float(place) for place, label in enumerate(numbers)}
        return numbers

    def cells(self, place: Selection, method: str, experiment: Experiment) -> tuple[CellAddress, ...]:
        """The cells of one value: one, or those of all settings of a mean. A `UserError` if one does not exist."""
        settings = (place.narrowed(one).setting(experiment) for one in self.mean_of or (Selection(),))
        return tuple(existing_cell(setting, method, experiment) for setting in settings)


class _Shown(NamedTuple):
    """One value of a panel: its line (a method, or a title), the label of its x (None for a level), and its cells."""

    line: str
    x: str | None
    cells: tuple[CellAddress, ...]


class SweepLayout(FinalValuesLayout, BandsLayout):
    """Panels of final values against a swept value, `columns` side by side."""

    page_order: ClassVar[int] = 4
    kind: Literal["sweep"] = "sweep"
    columns: Columns = Field(default=2, description="panels side by side")
    select: Selection = Field(default=Selection(), description="what all panels have in common")
    panels: tuple[SweepPanel, ...] = Field(
        default=(),
        description="the panels; empty: one for each value that the experiment sweeps, and each setting of `grid`",
    )
    grid: GridPart = Field(default="partitions", description=PANELS_OF_GRID)
    reference: tuple[str, ...] = Field(
        default=("fedavg",),
        description="methods in order of preference; panels of `grid` have the first one as a level",
    )

    @model_validator(mode="after")
    def _methods_of_panels(self) -> "SweepLayout":
        for panel in self.panels:
            for method in (*(panel.methods or ()), *panel.levels):
                if method not in self.methods:
                    raise unknown("method of the figure", method, self.methods)
        return self

    def _over_grid(self, experiment: Experiment) -> Self:
        """The layout with panels of the experiment's sweeps, if its file has none, without methods that it lacks."""
        if self.panels:
            panels = [panel.model_copy(update=self._methods_in(panel)) for panel in self.panels]
            return self._with_panels(panels, experiment)
        axes = dict.fromkeys(axis for one in experiment.swept.values() for axis in one.axes)
        if not axes:
            raise UserError(f"experiment {experiment.name} has no sweep")
        known = [method for method in self.reference if method in self.methods and method not in experiment.swept]
        levels = tuple(known[:1])
        made = []
        for axis, place in itertools.product(axes, grid_settings(experiment, self.grid)):
            title = f"{part_prefix(experiment, place)}{partition_title(place.partition)}"
            select = Selection(dataset=place.dataset, partition=place.partition, participation=place.participation)
            panel = SweepPanel(title=title, axis=axis, select=select, levels=levels)
            if all(one.x is None for one in self.shown(panel, experiment)):  # no method of this part sweeps it
                continue
            numbers = list(panel.ticks(experiment).values())
            is_wide = min(numbers) > 0 and max(numbers) >= _WIDE * min(numbers)
            made.append(panel.model_copy(update={"scale": "log" if is_wide else "linear"}))
        if not made:
            raise UserError(f"none of its methods is swept in experiment {experiment.name}")
        return self._with_panels(made, experiment)

    def _with_panels(self, panels: Sequence[SweepPanel], experiment: Experiment) -> Self:
        """The layout with these panels, and with bands if they have few lines."""
        lines = ({one.line for one in self.shown(panel, experiment) if one.x is not None} for panel in panels)
        bands = self.allows_bands(max(map(len, lines)))
        return self.model_copy(update={"panels": tuple(panels), "bands": bands})

    def _methods_in(self, panel: SweepPanel) -> dict[str, tuple[str, ...] | None]:
        """The methods of a panel that the figure shows."""
        lines = None if panel.methods is None else tuple(m for m in panel.methods if m in self.methods)
        return {"methods": lines, "levels": tuple(m for m in panel.levels if m in self.methods)}

    def shown(self, panel: SweepPanel, experiment: Experiment) -> Iterator[_Shown]:
        """The values of a panel, line by line; a `UserError` if the experiment has no such method or setting."""
        place = self.select.narrowed(panel.select)
        if panel.axis is not None:
            yield from self._swept(panel.axis, place.setting(experiment), experiment)
        else:
            lines = [(method, method, place) for method in panel.lines(self.methods)]
            if panel.settings:
                lines = [(line.title, m, place.narrowed(line.select)) for line in panel.settings for _, m, _ in lines]
            for (line, method, within), point in itertools.product(lines, panel.points):
                cells = panel.cells(within.narrowed(point.select), method + point.suffix, experiment)
                yield _Shown(line, f"{point.x:g}", cells)
        for method in panel.levels:
            if panel.axis is None or method in experiment.resolved_parts[place.setting(experiment).dataset].methods:
                yield _Shown(method, None, panel.cells(place, method, experiment))

    def _swept(self, axis: str, setting: Setting, experiment: Experiment) -> Iterator[_Shown]:
        """The values of the methods of this part that sweep an axis, in the order of its values."""
        swept = {label: one for label, one in experiment.swept.items() if axis in one.axes}
        if not swept:
            known = {name for one in experiment.swept.values() for name in one.axes}
            raise unknown(f"axis of experiment {experiment.name}", axis, known)
        for label, one in swept.items():
            if label in self.methods and label in experiment.resolved_parts[setting.dataset].methods:
                yield _Shown(_line_of(one.without(axis)), in_label(one.axes[axis]), (CellAddress(setting, label),))

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings of all points and levels, each once."""
        return tuple(dict.fromkeys(cell.setting for cell in self.cells(experiment)))

    def cells(self, experiment: Experiment) -> tuple[CellAddress, ...]:
        """The cells of all panels, each once."""
        shown = (one for panel in self.panels for one in self.shown(panel, experiment))
        return tuple(dict.fromkeys(cell for one in shown for cell in one.cells if experiment.has_cell(cell)))

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of points, bands and horizontal lines."""
        of_levels = " Horizontal lines: methods without the swept value." * any(p.levels for p in self.panels)
        return self.means(frame, "Points") + of_levels

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share the y axis. A value with a diverged run has no point, and is named at the foot."""
        columns = min(self.columns, len(self.panels))
        rows = -(-len(self.panels) // columns)
        metrics = tidy.gather("metrics", self.cells(tidy.experiment))
        names = method_titles(tidy.experiment)
        notes = [
            diverged_note(metrics, names, "no point"),
            stopped_note(metrics, names),
            missing_note(frame, self, tidy),
        ]
        figure, body = new_figure(self.width, 2.1 * rows + 0.45, notes)
        grid = body.subplots(rows, columns, sharey=True, squeeze=False)
        values, seen, looks = self.values(frame, tidy.experiment), set(), self.looks(tidy.experiment)
        for axes in grid.flat[len(self.panels) :]:
            axes.set_visible(False)
        for axes, panel in zip(grid.flat, self.panels, strict=False):
            seen |= _draw_panel(axes, panel, self, tidy, values, looks, band=self.has_bands(frame))
        for axes in grid[:, 0]:
            axes.set_ylabel(self.quantity.with_unit[0].upper() + self.quantity.with_unit[1:])
        names = {**names, **self._titles_of_sweeps(tidy.experiment)}
        titles = {line: names.get(line, line) for line in looks if line in seen}
        draw_legend(body, {title: looks[line] for line, title in titles.items()}, self.width)
        return figure

    def looks(self, experiment: Experiment) -> dict[str, Style]:
        """The look of each line: that of its method, or of its place among the settings or among a sweep's lines."""
        settings = dict.fromkeys(line.title for panel in self.panels for line in panel.settings)
        looks = styles(experiment, [method for method in self.methods if method in experiment.methods])
        swept = self._lines_of_sweeps(experiment)
        if len({one.base for _, one in swept.values()}) == len(swept):
            looks |= {line: styles(experiment)[method] for line, (method, _) in swept.items()}
        else:
            looks |= {line: line_look(number) for number, line in enumerate(swept)}
        return looks | {title: line_look(number) for number, title in enumerate(settings)}

    def _lines_of_sweeps(self, experiment: Experiment) -> dict[str, tuple[str, SweptMethod]]:
        """By line of panels with an axis, its first method, and the values that all its points share."""
        found: dict[str, tuple[str, SweptMethod]] = {}
        for axis in dict.fromkeys(panel.axis for panel in self.panels if panel.axis is not None):
            for label, one in experiment.swept.items():
                if axis in one.axes and label in self.methods:
                    found.setdefault(_line_of(rest := one.without(axis)), (label, rest))
        return found

    def _titles_of_sweeps(self, experiment: Experiment) -> dict[str, str]:
        """The names of the lines of sweeps: that of the entry, and the values that all points share."""
        lines = self._lines_of_sweeps(experiment)
        levels = (level for panel in self.panels for level in panel.levels)
        names = entry_titles(experiment, [*levels, *(method for method, _ in lines.values())])
        return {
            line: f"{names[rest.base]} ({rest.title})" if rest.axes else names[rest.base]
            for line, (_, rest) in lines.items()
        }


def _line_of(values: SweptMethod) -> str:
    """The key of a line: the entry's label, and the values that all points share; no two lines have the same."""
    return f"{values.base}: {values.title}"


def _draw_panel(
    axes: Axes,
    panel: SweepPanel,
    layout: SweepLayout,
    tidy: Tidy,
    values: pd.DataFrame,
    looks: dict[str, Style],
    *,
    band: bool,
) -> set[str]:
    """Draw one panel; return the lines that have data in it."""
    ticks = panel.ticks(tidy.experiment)
    rows = [
        (one.line, None if one.x is None else ticks[one.x], *_mean_and_std(_by_seed(values, one.cells)))
        for one in layout.shown(panel, tidy.experiment)
    ]
    found = pd.DataFrame(rows, columns=["line", "x", "mean", "std"]).dropna(subset="mean").astype({"x": float})
    found = found.sort_values("x", kind="stable")
    for name, line in found.dropna(subset="x").groupby("line", sort=False):
        look = looks[str(name)]
        draw_curve(axes, line["x"], line["mean"], line["std"], look, band=band)
        axes.plot(line["x"], line["mean"], look.marker or ".", color=look.colour, markersize=4.5)
    for _, level in found[found["x"].isna()].iterrows():
        look = looks[str(level["line"])]
        axes.axhline(float(level["mean"]), color=look.colour, linestyle=look.dashes)
    axes.set(title=panel.title or "", xlabel=panel.x or panel.axis, xscale="log" if panel.scale == "log" else "linear")
    axes.set_xticks(list(ticks.values()), list(ticks))
    axes.set_xticks([], minor=True)
    return set(found["line"])


def _by_seed(values: pd.DataFrame, cells: Sequence[CellAddress]) -> pd.Series:
    """The mean over the cells for each seed that all of them have; NaN if one of them diverged."""
    found = [of_cell(values, cell).set_index("seed")["value"].astype(float) for cell in cells]
    return pd.concat(found, axis=1, join="inner").mean(axis=1, skipna=False)


def _mean_and_std(values: pd.Series) -> tuple[float, float]:
    """Mean and sample standard deviation over seeds; NaN if there are none or a value is not finite."""
    whole = len(values) > 0 and bool(np.isfinite(values.astype(float)).all())
    return (float(values.mean()), float(values.std())) if whole else (np.nan, np.nan)
