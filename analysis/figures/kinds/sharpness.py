"""Largest increase of the loss in a ball around the final model, against the ball's radius."""

from typing import ClassVar, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.figures.base import most_side_by_side, new_figure
from fedflat.analysis.figures.lines import LinePanelsLayout, draw_lines, label_outer, spread, with_coinciding_note
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.tidy import Tidy


class SharpnessLayout(LinePanelsLayout):
    """Panels of sharpness against radius. On log scales, estimates that are not positive are not shown."""

    needs: ClassVar[str] = "sharpness"
    page_order: ClassVar[int] = 5
    kind: Literal["sharpness"] = "sharpness"
    scale: Literal["linear", "log"] = Field(default="linear", description="of both axes")

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands."""
        return self.means(frame)

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share both axes."""
        lines = spread(frame, "radius", "sharpness")
        columns = most_side_by_side(len(self.panels))
        height = 2.75 + 2.1 * (-(-len(self.panels) // columns) - 1)
        missing = missing_note(frame, self, tidy)

        def draw(note: str) -> tuple[Figure, list[Axes]]:
            figure, body = new_figure(self.width, height, [note, missing])
            drawn = draw_lines(body, self, tidy, lines, "radius", columns=columns)
            for axes in drawn:
                axes.set(xscale=self.scale, yscale=self.scale)
                if self.scale == "log":
                    radii = sorted(frame["radius"].unique())
                    axes.set_xticks(radii, [f"{radius:g}" for radius in radii])
                    axes.set_xticks([], minor=True)
            label_outer(drawn, columns, "Radius ρ of the ball", "Largest rise of the loss")
            return figure, drawn

        return with_coinciding_note(draw, self, tidy, lines, "radius")
