"""Largest increase of the loss in a ball around the final model, against the ball's radius."""

from typing import ClassVar, Literal

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.base import means_and_deviations, new_figure
from analysis.figures.lines import LinePanelsLayout, coinciding_note, draw_lines, spread
from analysis.figures.notes import missing_note
from analysis.layouts.tidy import Tidy


class SharpnessLayout(LinePanelsLayout):
    """Panels of sharpness against radius. On log scales, estimates that are not positive are not shown."""

    needs: ClassVar[str] = "sharpness"
    kind: Literal["sharpness"] = "sharpness"
    scale: Literal["linear", "log"] = "linear"

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands."""
        return means_and_deviations(frame, "Lines")

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share both axes."""
        lines = spread(frame, "radius", "sharpness")
        notes = [coinciding_note(self, tidy, lines, "radius"), missing_note(frame, self, tidy)]
        figure, body = new_figure(self.width, 2.75, notes)
        drawn = draw_lines(body, self, tidy, lines, "radius", columns=len(self.panels))
        for axes in drawn:
            axes.set(xlabel="Radius ρ of the ball", xscale=self.scale, yscale=self.scale)
            if self.scale == "log":
                radii = sorted(frame["radius"].unique())
                axes.set_xticks(radii, [f"{radius:g}" for radius in radii])
                axes.set_xticks([], minor=True)
        drawn[0].set_ylabel("Largest rise of the loss")
        return figure
