"""Accuracy or loss against communication round: one panel per setting, one line per method."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, field_validator

from fedflat.analysis.figures.base import new_figure, plain_numbers, whole_numbers
from fedflat.analysis.figures.lines import LinePanelsLayout, draw_lines, label_outer, smoothing, with_coinciding_note
from fedflat.analysis.figures.notes import diverged_note, missing_note, stopped_note
from fedflat.analysis.layouts.grid import PANELS_OF_GRID, GridPart
from fedflat.analysis.layouts.quantities import quantity, round_columns
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.convergence import curves, neighbour_means
from fedflat.bench.experiments.address import IDS
from fedflat.bench.input.bounds import Columns, Count
from fedflat.bench.input.errors import UserError, unknown

_MOST_HIDDEN = 0.2
"""The largest share of the points that a limit of the y axis hides."""


class ConvergenceLayout(LinePanelsLayout):
    """Panels of convergence curves, `columns` side by side."""

    needs: ClassVar[str] = "metrics"
    page_order: ClassVar[int] = 1
    kind: Literal["convergence"] = "convergence"
    metric: str = Field(
        default="test_accuracy",
        description="what is shown over the rounds: a column of a metric, such as test_macro_f1, or local_loss",
    )
    columns: Columns = Field(
        default=2, description="panels side by side; by default, one for each partition of the grid"
    )
    grid: GridPart = Field(default="all", description=PANELS_OF_GRID)
    rounds_scale: Literal["linear", "log"] = Field(default="linear", description="scale of the x axis")
    window: Count = Field(default=1, description="evaluations to average around each one, run by run; 1: none")
    spacing: Count = Field(
        default=1,
        description="rounds between the evaluations to average, where the last rounds have more of them; 1: all",
    )
    every: Count = Field(default=1, description="rounds between the points of a curve")
    targets: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        examples=[[80, 90]], default=(), description="values marked by a line"
    )
    y_min: float | None = Field(
        examples=[40],
        default=None,
        description="lowest value shown, unless a curve ends below it, or it hides more than a fifth of all points",
    )
    y_max: float | None = Field(examples=[100], default=None, description="highest value shown, likewise")

    @field_validator("metric")
    @classmethod
    def _over_rounds(cls, metric: str) -> str:
        if metric not in (known := round_columns()):
            raise unknown("metric over rounds", metric, known)
        return metric

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands, how runs are smoothed and thinned, and which values are not shown."""
        shown = self.shown(frame)
        if shown.empty:
            return ""
        mean = curves(shown, self.metric)
        low, high = _limits(self, mean)
        hidden = [
            *([f"below {low:g}"] if low is not None and (mean["mean"] < low).any() else []),
            *([f"above {high:g}"] if high is not None and (mean["mean"] > high).any() else []),
        ]
        cut = f" Values {' and '.join(hidden)} are not shown." if hidden else ""
        evaluations = "evaluations" if self.spacing == 1 else f"evaluations of every {self.spacing}th round"
        return self.means_of_curves(shown, self.metric) + smoothing(evaluations, self.window, self.every) + cut

    def shown(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows that are drawn: smoothed and thinned."""
        regular = frame[frame["round"] % self.spacing == 0]
        return neighbour_means(regular, self.metric, self.window, self.every)

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure. The curve of a method ends at a cross where a seed diverged, and the foot names the method."""
        shown = self.shown(frame)
        if shown.empty:
            last = int(frame["round"].max())
            raise UserError(
                f"nothing to draw for '{self.title}': every = {self.every}, but the runs have {last} rounds"
            )
        rows = -(-len(self.panels) // self.columns)
        names = method_titles(tidy.experiment)
        mean = curves(shown, self.metric)
        has_curve = frame.set_index(IDS).index.isin(mean.set_index(IDS).index)
        notes = [
            diverged_note(frame[has_curve], names, "the curve ends at a cross"),
            diverged_note(frame[~has_curve], names, "before the first value that is shown, so there is no curve"),
            stopped_note(frame, names),
        ]
        within = quantity(self.metric).range
        diverged = frame[frame.groupby(IDS)["diverged"].transform("max") > 0]
        missing = missing_note(frame, self, tidy)

        def draw(note: str) -> tuple[Figure, list[Axes]]:
            figure, body = new_figure(self.width, 2.0 * rows + 0.55, [*notes, note, missing])
            drawn = draw_lines(body, self, tidy, mean, "round", columns=self.columns, within=within, side_by_side=True)
            for axes, panel in zip(drawn, self.panels, strict=True):
                for curve in self.curves(panel, tidy.experiment):
                    if not of_cell(diverged, curve.cell).empty:
                        _cross_the_end(axes, of_cell(mean, curve.cell), curve.look.colour, curve.offset)
                for target in self.targets:
                    axes.axhline(target, color="#777777", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
                if self.rounds_scale == "log":
                    axes.set_xscale("log")
                    plain_numbers(axes.xaxis, *axes.get_xlim())
                else:
                    whole_numbers(axes.xaxis)
            label_outer(drawn, self.columns, "Communication round", quantity(self.metric).axis)
            drawn[0].set_ylim(*_limits(self, mean))
            return figure, drawn

        return with_coinciding_note(draw, self, tidy, mean, "round")


def _cross_the_end(axes: Axes, curve: pd.DataFrame, colour: str, offset: float) -> None:
    """A cross on a curve's last point, if it has one; `offset` is that of a single point."""
    end = curve[["round", "mean"]].tail(1).to_numpy(float)
    axes.plot(end[:, 0] + (offset if len(curve) == 1 else 0), end[:, 1], "x", color=colour, ms=5, markeredgewidth=1.5)


def _limits(layout: ConvergenceLayout, mean: pd.DataFrame) -> tuple[float | None, float | None]:
    """The layout's limits of the y axis; None, to be chosen from the data, if curves end beyond a limit, or much of
    them lies there.

    Limits show the ends of curves well; a limit that suits long runs must not hide short or failed ones.
    """
    ends = mean.groupby(IDS)["mean"].last()

    def suits(beyond: Callable[[pd.Series], "pd.Series[bool]"]) -> bool:
        return not beyond(ends).any() and bool(beyond(mean["mean"]).mean() <= _MOST_HIDDEN)

    low, high = layout.y_min, layout.y_max
    return (
        low if low is not None and suits(lambda values: values <= low) else None,
        high if high is not None and suits(lambda values: values >= high) else None,
    )
