"""Perturbation drift, global sharpness and related quantities against communication round (FedLESAM, Figure 2)."""

from typing import ClassVar, Literal, Self

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.figures.base import draw_curve, new_figure, whole_numbers
from fedflat.analysis.figures.lines import LinesLayout, LinesPanel, draw_lines_legend
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.measures.convergence import curves
from fedflat.bench.experiments.experiment import Experiment

_LABELS = {
    "perturbation_drift": "Perturbation drift PD (0 to 1)",
    "cosine": "Cosine of perturbations",
    "local_norm": "Norm of local perturbations",
    "gradient_norm": "Norm of the global gradient",
    "sharpness": "Global sharpness",
}
# By definition; the estimate of sharpness may be negative.
_WITHIN = {"perturbation_drift": (0, 1), "cosine": (-1, 1), "local_norm": (0, np.inf), "gradient_norm": (0, np.inf)}

Quantity = Literal["perturbation_drift", "cosine", "local_norm", "gradient_norm", "sharpness"]


class DriftLayout(LinesLayout):
    """One panel per quantity, all with the same lines; methods without a perturbation are shown in the panel of
    sharpness only."""

    needs: ClassVar[str] = "drift"
    of_one_setting: ClassVar[bool] = True
    page_order: ClassVar[int] = 8
    kind: Literal["drift"] = "drift"
    show: tuple[Quantity, ...] = Field(
        default=("perturbation_drift", "sharpness"), min_length=1, description="the panels, two side by side"
    )
    sharpness_scale: Literal["linear", "log"] = Field(default="linear", description="of the y axis of sharpness")
    select: LinesPanel = Field(
        default=LinesPanel(), description="the setting; missing fields: those of the main setting"
    )

    def _over_grid(self, experiment: Experiment) -> Self:
        lines = self.select.with_lines_of(self.methods)
        return self.model_copy(update={"select": lines if lines.lines else lines.completed(experiment)})

    @property
    def line_panels(self) -> tuple[LinesPanel, ...]:
        """Its lines."""
        return (self.select,)

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands."""
        return self.means_of_curves(frame, *self.show)

    def computed(self, frame: pd.DataFrame) -> str:
        """What was computed; runs without perturbations, which the foot names, lack a part of it."""
        perturbed = frame[frame["perturbation_drift"].notna()]
        return super().computed(frame if perturbed.empty else perturbed)

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure."""
        title = self.panel_title(self.select, tidy.experiment)
        rows, columns = -(-len(self.show) // 2), min(len(self.show), 2)
        figure, body = new_figure(
            self.width, 2.2 * rows + 0.55, [_without_note(self, tidy, frame), missing_note(frame, self, tidy)]
        )
        grid = body.subplots(rows, columns, sharex=True, squeeze=False)
        band = self.has_bands(frame)
        for axes, column in zip(grid.flat, self.show, strict=False):
            mean, within = curves(frame, column), _WITHIN.get(column, (-np.inf, np.inf))
            for curve in self.curves(self.select, tidy.experiment):
                line = of_cell(mean, curve.cell)
                draw_curve(axes, line["round"], line["mean"], line["std"], curve.look, within, curve.offset, band=band)
            whole_numbers(axes.xaxis)
            axes.set(xlabel="Communication round", ylabel=_LABELS[column], title=title)
            axes.tick_params(labelbottom=True)
            if column == "sharpness":
                axes.set_yscale(self.sharpness_scale)
            # The axis shows where the data lie, and nothing that is impossible.
            low, high = axes.get_ylim()
            axes.set_ylim(max(low, within[0]), min(high, within[1]))
        for axes in grid.flat[len(self.show) :]:
            axes.set_visible(False)
        draw_lines_legend(body, self, tidy, frame.dropna(subset=list(self.show), how="all"))
        return figure


def _without_note(layout: DriftLayout, tidy: Tidy, frame: pd.DataFrame) -> str:
    """Names the lines without perturbations, which have a curve of the sharpness only."""
    columns = [column for column in layout.show if column != "sharpness"]
    names = [
        curve.title
        for curve in layout.curves(layout.select, tidy.experiment)
        if not (rows := of_cell(frame, curve.cell)).empty and rows[columns].isna().all(axis=None)
    ]
    return f"no perturbations: {', '.join(names)}" if columns and names else ""
