"""Test accuracy against communication round: one panel per setting, one line per method."""

from typing import ClassVar, Literal

import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from analysis.columns import IDS
from analysis.convergence import curves, diverged_seeds
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


class ConvergenceLayout(PanelLayout):
    """Panels of convergence curves, `columns` side by side."""

    needs: ClassVar[str] = "metrics"
    kind: Literal["convergence"]
    columns: int = 2
    y_min: float | None = Field(default=None, description="lowest accuracy shown, unless a curve ends below it")
    y_max: float | None = Field(default=None, description="highest accuracy shown, unless a curve ends above it")

    def statistics(self, frame: pd.DataFrame) -> str:
        """What lines and bands mean."""
        return seed_statistics(frame, "test_accuracy")


def draw(layout: ConvergenceLayout, tidy: Tidy, frame: pd.DataFrame) -> Figure:
    """The figure. A method whose seed diverged ends there, marked by a cross, and is named at the foot."""
    looks, aside = styles(tidy.experiment, layout.methods), asides(layout.methods)
    rows = -(-len(layout.panels) // layout.columns)
    notes = [_diverged_note(frame, titles(tidy.experiment)), missing_note(frame, layout, tidy)]
    figure, body = new_figure(layout.width, 2.0 * rows + 0.55, notes)
    grid = body.subplots(rows, layout.columns, sharex=True, sharey=True, squeeze=False)
    mean = curves(frame, "test_accuracy")
    for axes, panel in zip(grid.flat, layout.panels, strict=False):
        setting = panel.setting(tidy.experiment)
        axes.set_title(panel.heading(setting))
        for method in layout.methods:
            curve = of_cell(mean, CellKey(setting, method))
            draw_curve(axes, curve["round"], curve["mean"], curve["std"], looks[method], (0, 100), aside[method])
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
        round_axis(axes)
    for axes in grid.flat[len(layout.panels) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("Communication round")
    for axes in grid[:, 0]:
        axes.set_ylabel("Test accuracy (%)")
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
