"""Loss and error along the line between two models: the initial and the final one, or those of two methods."""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.analyses.base import Analysis, OnSubsets
from fedflat.analysis.figures.base import DEVIATION, BandsLayout, OneSettingLayout, add_legend, draw_curve, new_figure
from fedflat.analysis.figures.kinds.plane import PART
from fedflat.analysis.figures.lines import spread
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.figures.palette import styles
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError


class InterpolationLayout(BandsLayout, OneSettingLayout):
    """Loss on the left, error on the right, each on training or test data. `ends`: the models at t = 0 and t = 1."""

    needs: ClassVar[str] = "interpolation"
    page_order: ClassVar[int] = 12
    kind: Literal["interpolation"] = "interpolation"
    loss: Literal["train", "test"] = Field(default="train", description="images of the loss")
    error: Literal["train", "test"] = Field(default="test", description="images of the error")
    scale: Literal["linear", "log"] = Field(default="linear", description="of the axis of the loss")
    ends: tuple[str, str] = Field(default=("initial", "final"), description="names of the models at t = 0 and t = 1")

    def check(self, experiment: Experiment, analysis: Analysis | None) -> None:
        """The analysis must have the images that are shown."""
        super().check(experiment, analysis)
        for part in (self.loss, self.error):
            if isinstance(analysis, OnSubsets) and part not in analysis.data:
                raise UserError(f"{part} images need data: [{part}] of the analysis {self.file} in analyses.yaml")

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands, and the two models."""
        lines = self.means(frame, bands=f"{DEVIATION}, cut to possible values")
        return f"{lines} At t = 0 the {self.ends[0]} model, at t = 1 the {self.ends[1]} one."

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; thin vertical lines mark the two models."""
        (setting,) = self.settings(tidy.experiment)
        looks = styles(tidy.experiment, self.methods)
        figure, body = new_figure(self.width, 2.6, [missing_note(frame, self, tidy)])
        band = self.has_bands(frame)
        shown = {"loss": (self.loss, np.inf), "error": (self.error, 100.0)}
        for axes, (value, (part, most)) in zip(body.subplots(1, 2), shown.items(), strict=True):
            rows = frame[frame["data"] == part]
            if rows.empty:
                raise UserError(f"nothing to draw for '{self.title}': its interpolation.csv has no {part} images")
            lines = spread(rows, "t", value)
            for method in self.methods:
                line = of_cell(lines, CellAddress(setting, method))
                draw_curve(axes, line["t"], line["mean"], line["std"], looks[method], (0, most), band=band)
            for t in (0, 1):
                axes.axvline(t, color="#999999", linewidth=0.8, zorder=0)
            axes.set(xlabel=f"t: {self.ends[0]} (0), {self.ends[1]} (1)", ylabel=f"{PART[part]} {value}")
            axes.margins(x=0.02)
            if value == "loss":
                axes.set_yscale(self.scale)
            else:
                axes.set_ylabel(f"{PART[part]} error (%)")
        add_legend(body, frame, self, tidy.experiment)
        return figure
