"""Accuracy or loss against communication round: one panel per setting, one line per method."""

from typing import Annotated, ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from analysis.columns import IDS
from analysis.convergence import curves, diverged_seeds, neighbour_means
from analysis.figures.base import (
    PanelLayout,
    add_legend,
    asides,
    draw_curve,
    missing_note,
    new_figure,
    round_axis,
    seed_statistics,
)
from analysis.palette import styles
from analysis.tidy import CellKey, Tidy, of_cell, titles

_LABELS = {
    "test_accuracy": "Test accuracy (%)",
    "train_accuracy": "Training accuracy (%)",
    "test_loss": "Test loss",
    "train_loss": "Training loss",
    "local_loss": "Mean local loss",
}


class ConvergenceLayout(PanelLayout):
    """Panels of convergence curves, `columns` side by side."""

    needs: ClassVar[str] = "metrics"
    kind: Literal["convergence"]
    metric: Literal["test_accuracy", "train_accuracy", "test_loss", "train_loss", "local_loss"] = "test_accuracy"
    columns: int = 2
    window: int = Field(default=1, ge=1, description="evaluations to average around each one, run by run; 1: none")
    every: int = Field(default=1, ge=1, description="rounds between the points of a curve")
    targets: tuple[Annotated[float, Field(gt=0)], ...] = Field(default=(), description="values marked by a line")
    y_min: float | None = Field(default=None, description="lowest value shown, unless a curve ends below it")
    y_max: float | None = Field(default=None, description="highest value shown, unless a curve ends above it")

    def statistics(self, frame: pd.DataFrame) -> str:
        """What lines and bands mean."""
        smoothing = f" Each run's values are means of {self.window} neighbouring evaluations" if self.window > 1 else ""
        thinned = f"every {self.every} rounds" if self.every > 1 else ""
        between = ", " if smoothing and thinned else " Drawn " if thinned else ""
        end = "." if smoothing or thinned else ""
        shown = neighbour_means(frame, self.metric, self.window, self.every)
        return f"{seed_statistics(shown, self.metric)}{smoothing}{between}{thinned}{end}"


def draw(layout: ConvergenceLayout, tidy: Tidy, frame: pd.DataFrame) -> Figure:
    """The figure. A method whose seed diverged ends there, marked by a cross, and is named at the foot."""
    looks, aside = styles(tidy.experiment, layout.methods), asides(layout.methods)
    rows = -(-len(layout.panels) // layout.columns)
    notes = [_diverged_note(frame, titles(tidy.experiment)), missing_note(frame, layout, tidy)]
    figure, body = new_figure(layout.width, 2.0 * rows + 0.55, notes)
    grid = body.subplots(rows, layout.columns, sharex=True, sharey=True, squeeze=False)
    mean = curves(neighbour_means(frame, layout.metric, layout.window, layout.every), layout.metric)
    within = (0, 100) if layout.metric.endswith("accuracy") else (0, np.inf)
    for axes, panel in zip(grid.flat, layout.panels, strict=False):
        setting = panel.setting(tidy.experiment)
        axes.set_title(panel.heading(setting))
        for method in layout.methods:
            curve = of_cell(mean, CellKey(setting, method))
            draw_curve(axes, curve["round"], curve["mean"], curve["std"], looks[method], within, aside[method])
            if not curve.empty and of_cell(frame, CellKey(setting, method))["diverged"].any():
                end = curve.iloc[-1]
                axes.plot(
                    end["round"] + (aside[method] if len(curve) == 1 else 0),
                    end["mean"],
                    "x",
                    color=looks[method].colour,
                    markersize=5,
                    markeredgewidth=1.5,
                )
        for target in layout.targets:
            axes.axhline(target, color="#777777", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        round_axis(axes)
    for axes in grid.flat[len(layout.panels) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("Communication round")
    for axes in grid[:, 0]:
        axes.set_ylabel(_LABELS[layout.metric])
    grid.flat[0].set_ylim(*_limits(layout, mean.groupby(IDS)["mean"].last()))
    add_legend(body, frame, layout, tidy.experiment)
    return figure


def _limits(layout: ConvergenceLayout, ends: pd.Series) -> tuple[float | None, float | None]:
    """The layout's limits, each only where no curve ends beyond it; None is chosen from the data.

    A limit is there to show ends well: one that suits long runs must not hide short or failed ones.
    """
    y_min = layout.y_min if layout.y_min is not None and (ends > layout.y_min).all() else None
    y_max = layout.y_max if layout.y_max is not None and (ends < layout.y_max).all() else None
    return y_min, y_max


def _diverged_note(frame: pd.DataFrame, names: dict[str, str]) -> str:
    runs = diverged_seeds(frame)
    count = runs.groupby("method", sort=False)[["diverged", "seeds"]].sum()
    parts = [
        f"{names[str(method)]} ({row.diverged} of {row.seeds} runs)" for method, row in count.iterrows() if row.diverged
    ]
    return f"diverged (the curve ends at a cross): {', '.join(parts)}" if parts else ""
