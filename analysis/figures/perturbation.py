"""Loss against the radius of random perturbations of the final model (FedGF, Figure 5)."""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.columns import IDS
from analysis.figures.base import (
    PanelLayout,
    add_legend,
    count_seeds,
    draw_curve,
    missing_note,
    new_figure,
)
from analysis.palette import styles
from analysis.tidy import CellKey, Tidy, of_cell


class PerturbationLayout(PanelLayout):
    """Panels of loss against radius."""

    needs: ClassVar[str] = "perturbation"
    kind: Literal["perturbation"]
    scale: Literal["linear", "log"] = "linear"

    def statistics(self, frame: pd.DataFrame) -> str:
        """What lines and bands mean."""
        draws = frame.loc[frame["radius"] > 0, "draw"].nunique()
        return (
            f"Lines: mean over {draws} random directions for each of {count_seeds(frame)}; "
            "bands: ± one sample standard deviation over directions and seeds together, cut at zero, "
            "since no loss is negative."
        )


def draw(layout: PerturbationLayout, tidy: Tidy, frame: pd.DataFrame) -> Figure:
    """The figure; panels share the loss axis."""
    looks = styles(tidy.experiment, layout.methods)
    figure, body = new_figure(layout.width, 2.75, [missing_note(frame, layout, tidy)])
    losses = frame.groupby([*IDS, "radius"])["loss"].agg(["mean", "std"]).reset_index()
    grid = body.subplots(1, len(layout.panels), sharey=True, squeeze=False)
    for axes, panel in zip(grid.flat, layout.panels, strict=True):
        setting = panel.setting(tidy.experiment)
        for method in layout.methods:
            line = of_cell(losses, CellKey(setting, method))
            draw_curve(axes, line["radius"], line["mean"], line["std"], looks[method], within=(0, np.inf))
        axes.set(xlabel="Perturbation radius ‖δ‖₂", title=panel.heading(setting), yscale=layout.scale)
    grid.flat[0].set_ylabel("Loss")
    add_legend(body, frame, layout, tidy.experiment)
    return figure
