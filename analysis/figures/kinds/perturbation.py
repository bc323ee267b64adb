"""Loss, or its rise, against the size of a perturbation of the final model, random or along the gradient (FedGF,
Figure 5)."""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.flatness.perturbation import PerturbedLoss
from fedflat.analysis.figures.base import DEVIATION, count_seeds, most_side_by_side, new_figure
from fedflat.analysis.figures.lines import LinePanelsLayout, draw_lines, label_outer, spread, with_coinciding_note
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.bench.experiments.address import RUN_IDS
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError

_LABELS = {"random": "Perturbation radius ‖δ‖₂", "gradient": "Perturbation r along the unit gradient (r > 0: uphill)"}

_SHOWN = {"loss": "Loss F(w + δ)", "rise": "Rise of the loss F(w + δ) − F(w)"}


class PerturbationLayout(LinePanelsLayout):
    """Panels of loss, or of its rise, against radius, for random directions or the direction of the gradient."""

    needs: ClassVar[str] = "perturbation"
    page_order: ClassVar[int] = 6
    kind: Literal["perturbation"] = "perturbation"
    direction: Literal["random", "gradient"] = Field(
        default="random", description="one of the directions of the analysis; radii along the gradient may be negative"
    )
    show: Literal["loss", "rise"] = Field(
        default="loss", description="the loss F(w + δ), or its rise F(w + δ) − F(w), which needs the radius 0"
    )
    scale: Literal["linear", "log"] = Field(default="linear", description="of the y axis")

    def check(self, experiment: Experiment, analysis: Analysis | None) -> None:
        """The analysis must have the layout's directions, and the model itself for rises of the loss."""
        super().check(experiment, analysis)
        if not isinstance(analysis, PerturbedLoss):
            return
        if self.direction not in analysis.directions:
            raise UserError(
                f"direction: {self.direction} needs directions: [{self.direction}] of the analysis {self.file} in "
                "analyses.yaml"
            )
        if self.show == "rise" and 0 not in analysis.radii:
            raise UserError(f"show: rise needs 0 among the radii of the analysis {self.file} in analyses.yaml")

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of the layout's directions."""
        return frame[frame["direction"] == self.direction]

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands."""
        rows = self.drawn(frame)
        draws = rows.loc[rows["radius"] > 0, "draw"].nunique()
        cut = ", cut at zero, because no loss is negative" if self.show == "loss" else ""
        if self.direction != "random":
            return self.means(rows, bands=f"{DEVIATION}{cut}")
        seeds = count_seeds(frame)
        of_runs, over = (
            ("", "directions") if seeds == "1 seed" else (f" for each of {seeds}", "directions and seeds together")
        )
        bands = f"; bands: {DEVIATION} over {over}{cut}" if self.has_bands(rows) else ""
        return f"Lines: mean over {draws} random directions{of_runs}{bands}."

    def values(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows with what is shown, in a column `value`; the rise of a run is that above its loss at radius 0."""
        if self.show == "loss":
            return rows.assign(value=rows["loss"])
        at_model = rows[rows["radius"] == 0].groupby(RUN_IDS)["loss"].mean().rename("at_model")
        if at_model.empty:
            raise UserError(
                f"nothing to draw for '{self.title}': show: rise needs losses at radius 0; compute it again"
            )
        joined = rows.join(at_model, on=RUN_IDS)
        return joined.assign(value=joined["loss"] - joined["at_model"])

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share the y axis."""
        rows = self.drawn(frame)
        if rows.empty:
            raise UserError(
                f"nothing to draw for '{self.title}': the analysis perturbation was computed without directions: "
                f"[{self.direction}]; add it to the experiment's analyses.yaml"
            )
        lines = spread(self.values(rows), "radius", "value")
        columns = most_side_by_side(len(self.panels))
        height = 2.75 + 2.1 * (-(-len(self.panels) // columns) - 1)
        within = (0 if self.show == "loss" else -np.inf, np.inf)
        missing = missing_note(frame, self, tidy)

        def draw(note: str) -> tuple[Figure, list[Axes]]:
            figure, body = new_figure(self.width, height, [note, missing])
            drawn = draw_lines(body, self, tidy, lines, "radius", columns=columns, within=within)
            for axes in drawn:
                axes.set_yscale(self.scale)
            label_outer(drawn, columns, _LABELS[self.direction], _SHOWN[self.show])
            return figure, drawn

        return with_coinciding_note(draw, self, tidy, lines, "radius")
