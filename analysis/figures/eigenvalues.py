"""The largest Hessian eigenvalues of the global model against their index (Caldarola et al. 2022, Figures 5 and 15)."""

from typing import ClassVar, Literal

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
    round_axis,
)
from analysis.palette import styles
from analysis.tidy import CellKey, Tidy, of_cell


class EigenvaluesLayout(PanelLayout):
    """Panels of eigenvalue against index, side by side."""

    needs: ClassVar[str] = "hessian"
    kind: Literal["eigenvalues"]
    scale: Literal["linear", "log"] = "linear"

    def statistics(self, frame: pd.DataFrame) -> str:
        """What lines and bands mean."""
        return f"Lines: mean over {count_seeds(frame)}; bands: ± one sample standard deviation."


def draw(layout: EigenvaluesLayout, tidy: Tidy, frame: pd.DataFrame) -> Figure:
    """The figure; panels share the axis of eigenvalues."""
    looks = styles(tidy.experiment, layout.methods)
    figure, body = new_figure(layout.width, 2.75, [missing_note(frame, layout, tidy)])
    found = frame[frame["metric"] == "eigenvalue"]
    means = found.groupby([*IDS, "index"])["value"].agg(["mean", "std"]).reset_index()
    grid = body.subplots(1, len(layout.panels), sharey=True, squeeze=False)
    for axes, panel in zip(grid.flat, layout.panels, strict=True):
        setting = panel.setting(tidy.experiment)
        for method in layout.methods:
            line = of_cell(means, CellKey(setting, method))
            draw_curve(axes, line["index"], line["mean"], line["std"], looks[method])
        axes.set(xlabel="Eigenvalue index $i$", title=panel.heading(setting), yscale=layout.scale)
        round_axis(axes)
    grid.flat[0].set_ylabel("Hessian eigenvalue $λ_i$")
    add_legend(body, frame, layout, tidy.experiment)
    return figure
