"""Loss against the size of a perturbation of the final model, random or along the gradient (FedGF, Figure 5)."""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from analysis.analyses.base import Analysis
from analysis.analyses.flatness.perturbation import Perturbation
from analysis.figures.base import DEVIATION, count_seeds, means_and_deviations, most_side_by_side, new_figure
from analysis.figures.lines import LinePanelsLayout, coinciding_note, draw_lines, label_outer, spread
from analysis.figures.notes import missing_note
from analysis.layouts.tidy import Tidy
from bench.experiments.experiment import Experiment
from bench.input.errors import UserError

_LABELS = {"random": "Perturbation radius ‖δ‖₂", "gradient": "Perturbation r along the unit gradient (r > 0: uphill)"}


class PerturbationLayout(LinePanelsLayout):
    """Panels of loss against radius, for random directions or the direction of the gradient."""

    needs: ClassVar[str] = "perturbation"
    kind: Literal["perturbation"] = "perturbation"
    direction: Literal["random", "gradient"] = Field(
        default="random", description="one of the directions of the analysis; radii along the gradient may be negative"
    )
    scale: Literal["linear", "log"] = Field(default="linear", description="of the y axis")

    def check(self, experiment: Experiment, analysis: Analysis | None) -> None:
        """The analysis must have the layout's directions."""
        super().check(experiment, analysis)
        if isinstance(analysis, Perturbation) and self.direction not in analysis.directions:
            raise UserError(
                f"direction: {self.direction} needs directions: [{self.direction}] of the analysis {self.file} in "
                "analyses.yaml"
            )

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
        columns = most_side_by_side(len(self.panels))
        height = 2.75 + 2.1 * (-(-len(self.panels) // columns) - 1)
        figure, body = new_figure(self.width, height, notes)
        drawn = draw_lines(body, self, tidy, lines, "radius", columns=columns, within=(0, np.inf))
        for axes in drawn:
            axes.set_yscale(self.scale)
        label_outer(drawn, columns, _LABELS[self.direction], "Loss")
        return figure
