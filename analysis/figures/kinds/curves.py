"""Any column of the metrics against communication round: client drift, a broadcast number such as FedGF's c, costs.

For accuracy and losses use the kind `convergence`, which marks where runs diverged.
"""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.figures.base import new_figure, whole_numbers
from fedflat.analysis.figures.lines import LinePanelsLayout, draw_lines, label_outer, smoothing, with_coinciding_note
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.grid import PANELS_OF_GRID, GridPart
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.measures import convergence
from fedflat.bench.input.bounds import Columns, Count
from fedflat.bench.input.errors import UserError


class CurvesLayout(LinePanelsLayout):
    """Panels of one column over rounds, `columns` side by side. Methods whose runs lack the column have no curve."""

    needs: ClassVar[str] = "metrics"
    page_order: ClassVar[int] = 2
    kind: Literal["curves"] = "curves"
    metric: str = Field(min_length=1, description="a column of metrics.csv, such as client_drift")
    label: str | None = Field(default=None, description="label of the y axis; null: the column's name")
    columns: Columns = Field(
        default=2, description="panels side by side; by default, one for each partition of the grid"
    )
    grid: GridPart = Field(default="all", description=PANELS_OF_GRID)
    window: Count = Field(default=1, description="values to average around each one, run by run; 1: none")
    every: Count = Field(default=1, description="rounds between the points of a curve")
    scale: Literal["linear", "log"] = Field(default="linear", description="of the y axis")
    lowest: float | None = Field(
        examples=[0],
        default=None,
        description="the smallest possible value: the axis shows it, and bands are cut there",
    )
    highest: float | None = Field(examples=[1], default=None, description="the largest possible value, likewise")

    def also(self) -> tuple[str, ...]:
        """The column `metric`."""
        return (self.metric,)

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands, and how runs are smoothed and thinned."""
        shown = self.shown(frame).dropna(subset=self.metric)
        if shown.empty:
            return ""
        return self.means_of_curves(shown, self.metric) + smoothing("values", self.window, self.every)

    def shown(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows that are drawn: smoothed and thinned."""
        return convergence.neighbour_means(frame, self.metric, self.window, self.every)

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure. A curve ends where the first seed of its cell diverged."""
        mean = convergence.curves(self.shown(frame), self.metric)
        if mean.empty:
            last = frame.dropna(subset=self.metric)["round"].max()  # NaN if there are no numbers
            why = f"no run that it shows has numbers in a column '{self.metric}' of its metrics.csv"
            if last < self.every:
                why = f"every = {self.every}, but the runs have {last} rounds"
            raise UserError(f"nothing to draw for '{self.title}': {why}")
        columns = min(self.columns, len(self.panels))
        rows = -(-len(self.panels) // columns)
        within = (-np.inf if self.lowest is None else self.lowest, np.inf if self.highest is None else self.highest)
        missing = missing_note(frame, self, tidy)

        def draw(note: str) -> tuple[Figure, list[Axes]]:
            figure, body = new_figure(self.width, 2.0 * rows + 0.55, [note, missing])
            drawn = draw_lines(body, self, tidy, mean, "round", columns=columns, within=within, side_by_side=True)
            for axes in drawn:
                whole_numbers(axes.xaxis)
                axes.set(yscale=self.scale)
                axes.update_datalim([(0, bound) for bound in within if np.isfinite(bound)], updatex=False)
                axes.autoscale_view()
            label_outer(drawn, columns, "Communication round", self.label or self.metric)
            return figure, drawn

        return with_coinciding_note(draw, self, tidy, mean, "round")
