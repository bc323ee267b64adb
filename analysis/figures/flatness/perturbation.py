"""Loss against the size of a perturbation of the final model, random or along the gradient (FedGF, Figure 5)."""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from analysis.figures.base import DEVIATION, count_seeds, means_and_deviations, new_figure
from analysis.figures.lines import LinePanelsLayout, coinciding_note, draw_lines, spread
from analysis.figures.notes import missing_note
from analysis.layouts.tidy import Tidy
from bench.input.errors import UserError

_LABELS = {"random": "Perturbation radius ‖δ‖₂", "gradient": "Perturbation r along the unit gradient (r > 0: uphill)"}


class PerturbationLayout(LinePanelsLayout):
    """Panels of loss against radius, for random directions or the direction of the gradient."""

    needs: ClassVar[str] = "perturbation"
    kind: Literal["perturbation"] = "perturbation"
    direction: Literal["random", "gradient"] = Field(
        default="random", description="one of the directions of the analysis; radii along the gradient may be negative"
    )
    scale: Literal["linear", "log"] = "linear"

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of the layout's directions."""
        return frame[frame["direction"] == self.direction]

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands."""
        rows = self.drawn(frame)
        draws = rows.loc[rows["radius"] > 0, "draw"].nunique()
        cut = "cut at zero, because no loss is negative"
        if self.direction != "random":
            return means_and_deviations(frame, "Lines", f"bands: {DEVIATION}, {cut}")
        return (
            f"Lines: mean over {draws} random directions for each of {count_seeds(frame)}; bands: {DEVIATION} over "
            f"directions and seeds together, {cut}."
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share the loss axis."""
        rows = self.drawn(frame)
        if rows.empty:
            raise UserError(
                f"nothing to draw for '{self.title}': the analysis perturbation was computed without directions: "
                f"[{self.direction}]; add it to the experiment's analyses.yaml"
            )
        lines = spread(rows, "radius", "loss")
        notes = [coinciding_note(self, tidy, lines, "radius"), missing_note(frame, self, tidy)]
        figure, body = new_figure(self.width, 2.75, notes)
        drawn = draw_lines(body, self, tidy, lines, "radius", columns=len(self.panels), within=(0, np.inf))
        for axes in drawn:
            axes.set(xlabel=_LABELS[self.direction], yscale=self.scale)
        drawn[0].set_ylabel("Loss")
        return figure
