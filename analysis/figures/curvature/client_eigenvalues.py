"""λ_max of every client's local model on its own data against round (Caldarola et al. 2022, Figures 4 and 16)."""

from typing import ClassVar, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.base import PanelLayout, count_seeds, new_figure, round_axis
from analysis.figures.notes import missing_note
from analysis.figures.palette import Style, styles
from analysis.layouts.tidy import Tidy, of_cell
from analysis.layouts.titles import method_titles, partition_title
from bench.experiments.address import CellAddress


class ClientEigenvaluesLayout(PanelLayout):
    """One row of panels per setting, one column per method."""

    needs: ClassVar[str] = "client_hessian"
    kind: Literal["client_eigenvalues"] = "client_eigenvalues"
    scale: Literal["linear", "log"] = "log"

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands."""
        counts = frame.groupby("seed")["client"].nunique()
        return (
            f"Thin lines: one client each, {counts.max()} clients for each of {count_seeds(frame)}; "
            "thick lines: their median; bands: from the first to the third quartile."
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; all panels share their axes."""
        looks, names = styles(tidy.experiment, self.methods), method_titles(tidy.experiment)
        present = [method for method in self.methods if method in set(frame["method"])]
        figure, body = new_figure(self.width, 1.75 * len(self.panels) + 0.4, [missing_note(frame, self, tidy)])
        grid = body.subplots(len(self.panels), len(present), sharex=True, sharey=True, squeeze=False)
        for row, panel in zip(grid, self.panels, strict=True):
            setting = panel.setting(tidy.experiment)
            for axes, method in zip(row, present, strict=True):
                _draw_clients(axes, of_cell(frame, CellAddress(setting, method)), looks[method])
                round_axis(axes)
            row[0].set_ylabel(f"{panel.title or partition_title(setting.partition)}\nclients’ $λ_{{\\max}}$")
        for axes, method in zip(grid[0], present, strict=True):
            axes.set_title(names[method])
        for axes in grid[-1]:
            axes.set_xlabel("Round")
        grid[0, 0].set_yscale(self.scale)
        return figure


def _draw_clients(axes: Axes, rows: pd.DataFrame, look: Style) -> None:
    for _, line in rows.groupby(["seed", "client"]):
        axes.plot(line["round"], line["lambda_max"], ".-", color=look.colour, linewidth=0.5, alpha=0.35, markersize=1.5)
    if rows.empty:
        return
    low, middle, high = (rows.groupby("round")["lambda_max"].quantile(share) for share in (0.25, 0.5, 0.75))
    axes.fill_between(middle.index, low, high, color=look.colour, alpha=0.18, linewidth=0)
    axes.plot(middle.index, middle, color=look.colour, linewidth=1.8, marker="o", markersize=2.5)
