"""Test accuracy against communication round: one panel per setting, one line per method."""

from typing import ClassVar, Literal

import pandas as pd
from matplotlib.figure import Figure

from analysis.convergence import curves, diverged_seeds
from analysis.figures.base import (
    PanelLayout,
    add_legend,
    draw_curve,
    missing_note,
    new_figure,
    seed_statistics,
)
from analysis.palette import styles
from analysis.tidy import CellKey, Tidy, of_cell, titles


class ConvergenceLayout(PanelLayout):
    """Panels of convergence curves, `columns` side by side."""

    needs: ClassVar[str] = "metrics"
    kind: Literal["convergence"]
    columns: int = 2
    y_min: float | None = None
    y_max: float | None = None

    def statistics(self, frame: pd.DataFrame) -> str:
        """What lines and bands mean."""
        return seed_statistics(frame)


def draw(layout: ConvergenceLayout, tidy: Tidy, frame: pd.DataFrame) -> Figure:
    """The figure. A method whose seed diverged ends there, marked by a cross, and is named at the foot."""
    looks = styles(tidy.experiment, layout.methods)
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
            draw_curve(axes, curve["round"], curve["mean"], curve["std"], looks[method])
            if not curve.empty and of_cell(frame, CellKey(setting, method))["diverged"].any():
                end = curve.iloc[-1]
                axes.plot(
                    end["round"],
                    end["mean"],
                    "x",
                    color=looks[method].colour,
                    markersize=5,
                    markeredgewidth=1.5,
                )
    for axes in grid.flat[len(layout.panels) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("Communication round")
    for axes in grid[:, 0]:
        axes.set_ylabel("Test accuracy (%)")
    grid.flat[0].set_ylim(layout.y_min, layout.y_max)
    add_legend(body, frame, layout, tidy.experiment)
    return figure


def _diverged_note(frame: pd.DataFrame, names: dict[str, str]) -> str:
    runs = diverged_seeds(frame)
    count = runs.groupby("method", sort=False)[["diverged", "seeds"]].sum()
    parts = [
        f"{names[str(method)]} ({row.diverged} of {row.seeds} runs)" for method, row in count.iterrows() if row.diverged
    ]
    return f"diverged (the curve ends at a cross): {', '.join(parts)}" if parts else ""
