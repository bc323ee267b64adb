"""Perturbation drift and global sharpness against communication round, side by side (FedLESAM, Figure 2)."""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.convergence import curves
from analysis.figures.base import (
    FigureLayout,
    Panel,
    add_legend,
    asides,
    draw_curve,
    missing_note,
    new_figure,
    round_axis,
    seed_statistics,
)
from analysis.palette import styles
from analysis.tidy import CellKey, Setting, Tidy, of_cell
from bench.experiments import Experiment

_QUANTITIES = {"perturbation_drift": "Perturbation drift", "sharpness": "Global sharpness"}
# Drift lies in [0, 1] by definition; the estimate of sharpness may be negative.
_WITHIN = {"perturbation_drift": (0, 1), "sharpness": (-np.inf, np.inf)}


class DriftLayout(FigureLayout):
    """One setting; methods without a perturbation have no drift and stand in the right panel only."""

    needs: ClassVar[str] = "drift"
    kind: Literal["drift"]
    select: Panel
    sharpness_scale: Literal["linear", "log"] = "linear"

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The one setting."""
        return (self.select.setting(experiment),)

    def statistics(self, frame: pd.DataFrame) -> str:
        """What lines and bands mean."""
        return seed_statistics(frame, *_QUANTITIES)


def draw(layout: DriftLayout, tidy: Tidy, frame: pd.DataFrame) -> Figure:
    """The figure: drift on the left, sharpness on the right."""
    (setting,) = layout.settings(tidy.experiment)
    looks, aside = styles(tidy.experiment, layout.methods), asides(layout.methods)
    figure, body = new_figure(layout.width, 2.75, [missing_note(frame, layout, tidy)])
    panels = body.subplots(1, 2, sharex=True)
    for axes, (column, label) in zip(panels, _QUANTITIES.items(), strict=True):
        mean = curves(frame, column)
        for method in layout.methods:
            curve = of_cell(mean, CellKey(setting, method))
            draw_curve(axes, curve["round"], curve["mean"], curve["std"], looks[method], _WITHIN[column], aside[method])
        round_axis(axes)
        axes.set(xlabel="Communication round", ylabel=label, title=layout.select.heading(setting))
    panels[0].set_ylim(bottom=0)
    panels[1].set_yscale(layout.sharpness_scale)
    add_legend(body, frame, layout, tidy.experiment)
    return figure
