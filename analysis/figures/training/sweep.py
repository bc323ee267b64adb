"""A run's final value against a swept value: a hyper-parameter, or the heterogeneity of the clients."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, field_validator, model_validator

from analysis.figures.base import FigureLayout, draw_curve, draw_legend, means_and_deviations, new_figure
from analysis.figures.notes import diverged_note, missing_note, stopped_note
from analysis.figures.palette import LINES, Style, styles
from analysis.layouts.layout import Selection, existing_cell
from analysis.layouts.protocol import final_at_scale
from analysis.layouts.tidy import Tidy, of_cell
from analysis.layouts.titles import method_titles
from analysis.measures.convergence import FinalValue, reported
from analysis.tables.layout import Column
from analysis.tables.quantities import Quantity, quantity
from analysis.tables.values import values_of
from bench.experiments.address import RUN_IDS, CellAddress, Setting
from bench.experiments.experiment import Experiment
from bench.experiments.results import ResultPaths
from bench.input.bounds import Columns
from bench.input.errors import UserError, unknown
from bench.input.frozen import Frozen

Scale = Literal["linear", "log", "even"]


class Point(Frozen):
    """A swept value x and its cell, given by a suffix of the method's label and fields of the setting."""

    x: float
    suffix: str = Field(default="", description="suffix of the method's label in the experiment")
    select: Selection = Selection()


class SweepLine(Frozen):
    """A line through all points of a panel, in a setting of its own; its title is shown in the legend."""

    title: str
    select: Selection


class SweepPanel(Frozen):
    """One panel: a line through `points` for each method, and a horizontal line for each method of `levels`.

    A panel with `settings` has one method, and a line for each of its settings instead.
    """

    title: str | None = Field(default=None, description="heading; null: none")
    x: str = Field(description="the swept value in words")
    scale: Scale = Field(default="linear", description="scale of the x axis; even: equal distances between points")
    select: Selection = Selection()
    methods: tuple[str, ...] | None = Field(default=None, description="methods with a line; null: all but levels")
    levels: tuple[str, ...] = Field(default=(), description="methods that do not have the swept value")
    points: tuple[Point, ...] = Field(min_length=1)
    settings: tuple[SweepLine, ...] = Field(default=(), description="lines of one method; empty: one line per method")

    @model_validator(mode="after")
    def _ascending(self) -> "SweepPanel":
        xs = [point.x for point in self.points]
        if any(a >= b for a, b in itertools.pairwise(xs)):
            raise UserError(f"points of '{self.x}': x must increase from point to point")
        if self.scale == "log" and xs[0] <= 0:
            raise UserError(f"points of '{self.x}': x = {xs[0]:g} cannot be drawn on a log scale")
        if self.settings and (len(self.methods or ()) != 1 or self.levels):
            raise UserError(f"'{self.x}': a panel with settings must have one method in methods, and no levels")
        return self

    def lines(self, methods: Sequence[str]) -> tuple[str, ...]:
        """The methods that have a line, in the figure's order."""
        if self.methods is None:
            return tuple(method for method in methods if method not in self.levels)
        return tuple(method for method in methods if method in self.methods)

    def place(self, point: Point) -> float:
        """The position of a point on the x axis."""
        return float(self.points.index(point)) if self.scale == "even" else point.x


class _Shown(NamedTuple):
    """One cell of a panel: its line (a method, or the title of a setting), and its x; None for a level."""

    line: str
    x: float | None
    cell: CellAddress


class SweepLayout(FigureLayout):
    """Panels of final values against a swept value, `columns` side by side."""

    needs: ClassVar[str] = "metrics"
    kind: Literal["sweep"] = "sweep"
    metric: str = Field(default="test_accuracy", description="any metric of a table, except those of targets")
    final: FinalValue | None = Field(
        default=None, description="the reported value of a run; null: the one that each method reports"
    )
    columns: Columns = 2
    select: Selection = Field(default=Selection(), description="what all panels have in common")
    panels: tuple[SweepPanel, ...] = Field(min_length=1)

    @field_validator("metric")
    @classmethod
    def _one_per_run(cls, metric: str) -> str:
        if quantity(metric).file == "convergence":
            raise UserError(f"a sweep cannot show {metric}, because it depends on a target")
        return metric

    @model_validator(mode="after")
    def _methods_of_panels(self) -> "SweepLayout":
        for panel in self.panels:
            for method in (*(panel.methods or ()), *panel.levels):
                if method not in self.methods:
                    raise unknown("method of the figure", method, self.methods)
        return self

    @property
    def quantity(self) -> Quantity:
        """The quantity that is shown."""
        return quantity(self.metric)

    @property
    def needed_file(self) -> str:
        """The kind of file that has the quantity."""
        return self.quantity.file

    def shown(self, panel: SweepPanel, experiment: Experiment) -> Iterator[_Shown]:
        """The cells of a panel, line by line; a `UserError` if the experiment has no such method or setting."""
        place = self.select.narrowed(panel.select)
        lines = [(method, method, place) for method in panel.lines(self.methods)]
        if panel.settings:
            ((_, method, _),) = lines
            lines = [(line.title, method, place.narrowed(line.select)) for line in panel.settings]
        for (line, method, within), point in itertools.product(lines, panel.points):
            setting = within.narrowed(point.select).setting(experiment)
            cell = existing_cell(setting, method + point.suffix, experiment)
            yield _Shown(line, panel.place(point), cell)
        for method in panel.levels:
            yield _Shown(method, None, existing_cell(place.setting(experiment), method, experiment))

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings of all points and levels, each once."""
        return tuple(dict.fromkeys(cell.setting for cell in self.cells(experiment)))

    def cells(self, experiment: Experiment) -> tuple[CellAddress, ...]:
        """The cells of all panels, each once."""
        shown = (one for panel in self.panels for one in self.shown(panel, experiment))
        return tuple(dict.fromkeys(one.cell for one in shown if experiment.has_cell(one.cell)))

    def inputs(self, experiment: Experiment, paths: ResultPaths) -> list[Path]:
        """The tidy files that the figure reads. Metrics are always among them: they say which runs diverged."""
        files = dict.fromkeys(["metrics", self.file])
        return [paths.tidy(experiment.name, cell.path, file) for file in files for cell in self.cells(experiment)]

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of its quantity."""
        return frame[frame["metric"] == self.metric] if "metric" in frame else frame

    def reported_value(self, experiment: Experiment) -> str:
        """Which value of a run is shown: a sentence for the caption."""
        if self.needed_file != "metrics":
            return ""
        value = "the one that each method reports (after the last round, unless its released code reports another)"
        requested = "" if experiment.report is None else ", as requested instead of the figure's own protocol"
        return f"Values{requested}: {value if self.final is None else self.final.description}."

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of points, bands and horizontal lines."""
        of_levels = " Horizontal lines: methods without the swept value." * any(p.levels for p in self.panels)
        return means_and_deviations(frame, "Points") + of_levels

    def values(self, frame: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
        """One row per run: the columns that name it, and its `value`, NaN for a run that diverged."""
        column = Column(
            header=self.metric, metric=self.metric, final=self.final if self.needed_file == "metrics" else None
        )
        finals = {
            label: final_at_scale(reported(entry.release(label)), experiment)
            for label, entry in experiment.methods.items()
        }
        values = values_of(column, finals, frame)
        rows = [(*cell, value.seed, value.number) for cell, of_seeds in values.items() for value in of_seeds]
        return pd.DataFrame(rows, columns=[*RUN_IDS, "value"])

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share the y axis. A cell with a diverged run has no point, and is named at the foot."""
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
            seen |= _draw_panel(axes, panel, self, tidy, values, looks)
        for axes in grid[:, 0]:
            axes.set_ylabel(self.quantity.title[0].upper() + self.quantity.title[1:])
        titles = {line: names.get(line, line) for line in looks if line in seen}
        draw_legend(body, {title: looks[line] for line, title in titles.items()}, self.width)
        return figure

    def looks(self, experiment: Experiment) -> dict[str, Style]:
        """The look of each line: that of its method, or of its place among the settings."""
        settings = dict.fromkeys(line.title for panel in self.panels for line in panel.settings)
        return styles(experiment, self.methods) | dict(zip(settings, itertools.cycle(LINES), strict=False))


def _draw_panel(
    axes: Axes, panel: SweepPanel, layout: SweepLayout, tidy: Tidy, values: pd.DataFrame, looks: dict[str, Style]
) -> set[str]:
    """Draw one panel; return the lines that have data in it."""
    rows = [
        (one.line, one.x, *_mean_and_std(of_cell(values, one.cell)["value"]))
        for one in layout.shown(panel, tidy.experiment)
    ]
    found = pd.DataFrame(rows, columns=["line", "x", "mean", "std"]).dropna(subset="mean")
    for name, line in found.dropna(subset="x").groupby("line", sort=False):
        look = looks[str(name)]
        draw_curve(axes, line["x"], line["mean"], line["std"], look)
        axes.plot(line["x"], line["mean"], look.marker or ".", color=look.colour, markersize=4.5)
    for _, level in found[found["x"].isna()].iterrows():
        look = looks[str(level["line"])]
        axes.axhline(float(level["mean"]), color=look.colour, linestyle=look.dashes)
    axes.set(title=panel.title or "", xlabel=panel.x, xscale="log" if panel.scale == "log" else "linear")
    axes.set_xticks([panel.place(point) for point in panel.points], [f"{point.x:g}" for point in panel.points])
    axes.set_xticks([], minor=True)
    return set(found["line"])


def _mean_and_std(values: pd.Series) -> tuple[float, float]:
    """Mean and sample standard deviation over seeds; NaN if there are none or a value is not finite."""
    whole = len(values) > 0 and bool(np.isfinite(values.astype(float)).all())
    return (float(values.mean()), float(values.std())) if whole else (np.nan, np.nan)
