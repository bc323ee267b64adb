"""Accuracy on corrupted test images: by severity, and by corruption (Caldarola et al., Figures 6 and 8)."""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.figures.bars import draw_bars, draw_bars_legend
from fedflat.analysis.figures.base import (
    DEVIATION,
    BandsLayout,
    OneSettingLayout,
    add_legend,
    draw_curve,
    means_and_deviations,
    new_figure,
)
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.figures.palette import styles
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles
from fedflat.bench.experiments.address import IDS, CellAddress
from fedflat.bench.input.errors import UserError


class CorruptionsLayout(BandsLayout, OneSettingLayout):
    """One setting. `table`: the mean over corruptions against severity, and a table of each corruption at one severity;
    `bars`: a bar per method and corruption at this severity."""

    needs: ClassVar[str] = "corruptions"
    page_order: ClassVar[int] = 17
    kind: Literal["corruptions"] = "corruptions"
    form: Literal["table", "bars"] = Field(
        default="table", description="table: curves over the severity, and a table; bars: one bar per corruption"
    )
    severity: int = Field(default=5, ge=1, description="the severity of the table or the bars")

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of accuracies."""
        return frame[frame["metric"] == "accuracy"]

    def statistics(self, frame: pd.DataFrame) -> str:
        """The images, and the meaning of bars, or of lines and numbers."""
        images = f"Corrupted images: {', '.join(sorted(frame['suite'].unique()))}."
        if self.form == "bars":
            bars = means_and_deviations(frame, "Bars", f"lines on them: {DEVIATION}")
            return f"{images} Severity {self.severity}. {bars}"
        return (
            f"{images} {self.means(frame, 'Lines, mean accuracy over corruptions')} Numbers: accuracy (%) at "
            f"severity {self.severity}; bold: best of each corruption."
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; severity 0 means the clean images."""
        (setting,) = self.settings(tidy.experiment)
        frame = self.drawn(frame)
        at = frame[frame["severity"] == self.severity]
        if at.empty:
            raise UserError(f"nothing to draw for '{self.title}': no images of severity {self.severity}")
        present = [method for method in self.methods if not of_cell(at, CellAddress(setting, method)).empty]
        if self.form == "bars":
            return self._bars(tidy, frame, at, present)
        wide = at["corruption"].nunique() > 8
        rows, columns = (2, 1) if wide else (1, 2)
        table_height = 0.17 * len(present) + 1.1
        height = table_height + 2.2 if wide else max(2.6, table_height + 0.5)
        figure, body = new_figure(self.width, height, [missing_note(frame, self, tidy)])
        ratios = {"height_ratios": (1.7, table_height)} if wide else {"width_ratios": (1, 1.25)}
        left, right = np.ravel(body.subplots(rows, columns, gridspec_kw=ratios))
        _draw_severities(left, self, tidy, frame)
        _draw_table(
            right, at.groupby(["method", "corruption"], sort=False)["value"].mean().unstack(sort=False), present
        )
        right.set_yticks(range(len(present)), [method_titles(tidy.experiment)[method] for method in present])
        right.set_title(f"Severity {self.severity}")
        left.set_title(self.select.heading(setting))
        add_legend(body, frame, self, tidy.experiment)
        return figure

    def _bars(self, tidy: Tidy, frame: pd.DataFrame, at: pd.DataFrame, present: list[str]) -> Figure:
        """One panel with the accuracies at one severity."""
        (setting,) = self.settings(tidy.experiment)
        figure, body = new_figure(self.width, 2.9, [missing_note(frame, self, tidy)])
        axes = body.subplots()
        by_seed = at.groupby(["method", "corruption"], sort=False)["value"]
        means, deviations = (values.unstack(sort=False).loc[present] for values in (by_seed.mean(), by_seed.std()))
        looks = styles(tidy.experiment, present)
        draw_bars(axes, means, deviations, looks)
        axes.set(title=self.select.heading(setting), ylabel=f"Accuracy (%), severity {self.severity}")
        draw_bars_legend(body, looks, method_titles(tidy.experiment), self.width)
        return figure


def _draw_severities(axes: Axes, layout: CorruptionsLayout, tidy: Tidy, frame: pd.DataFrame) -> None:
    (setting,) = layout.settings(tidy.experiment)
    looks = styles(tidy.experiment, layout.methods)
    by_seed = frame.groupby([*IDS, "severity", "seed"])["value"].mean()
    means = by_seed.groupby([*IDS, "severity"]).agg(["mean", "std"]).reset_index()
    band = layout.has_bands(frame)
    for method in layout.methods:
        line = of_cell(means, CellAddress(setting, method))
        draw_curve(axes, line["severity"], line["mean"], line["std"], looks[method], (0, 100), band=band)
    axes.set(xlabel="Severity (0: clean)", ylabel="Accuracy (%)", xticks=sorted(means["severity"].unique()))


def _draw_table(axes: Axes, table: pd.DataFrame, methods: list[str]) -> None:
    """Methods × corruptions, coloured by accuracy, with the numbers."""
    values = table.loc[methods].to_numpy(float)
    lowest, highest = float(np.nanmin(values)), float(np.nanmax(values))
    axes.imshow(values, cmap="viridis", aspect="auto", vmin=lowest, vmax=highest)
    best = np.round(values, 1) == np.round(np.nanmax(values, axis=0), 1)
    for (row, column), value in np.ndenumerate(values):
        dark = value < (lowest + highest) / 2
        axes.text(
            column, row, f"{value:.0f}" if values.shape[1] > 8 else f"{value:.1f}",
            ha="center", va="center", fontsize=7,
            color="white" if dark else "black", fontweight="bold" if best[row, column] else "normal",
        )  # fmt: skip
    axes.set_xticks(
        range(len(table.columns)), [str(name).replace("_", " ") for name in table.columns],
        rotation=40, ha="right", rotation_mode="anchor",
    )  # fmt: skip
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
