"""Density of all Hessian eigenvalues of the global model, on a logarithmic scale."""

from typing import ClassVar, Literal

import pandas as pd
from matplotlib.figure import Figure

from fedflat.analysis.figures.base import OneSeedLayout, PanelLayout, new_figure
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.figures.palette import styles
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles, partition_title
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.input.errors import UserError


class DensityLayout(OneSeedLayout, PanelLayout):
    """One row of panels per setting, one column per method; one seed, because a mean would blur single eigenvalues."""

    needs: ClassVar[str] = "spectrum"
    page_order: ClassVar[int] = 10
    kind: Literal["density"] = "density"

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows with points of the density."""
        return frame[frame["metric"] == "density"]

    def statistics(self, frame: pd.DataFrame) -> str:
        """The seed, the meaning of a line, and the lower end of the axis."""
        seed = frame["seed"].iloc[0] if self.seed is None else self.seed
        return (
            f"Seed {seed}. Every eigenvalue is a narrow Gaussian, and the area under a line is 1; "
            "the lower end of the axis is half the height of a single eigenvalue."
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; all panels share their axes."""
        looks, names = styles(tidy.experiment, self.methods), method_titles(tidy.experiment)
        seed = self.shown_seed(tidy.experiment)
        if frame.empty:
            raise UserError(f"nothing to draw for '{self.title}': no density of seed {seed}")
        present = [method for method in self.methods if method in set(frame["method"])]
        points = self.drawn(frame)
        floor = frame.loc[frame["metric"] == "density_single", "value"].min() / 2
        figure, body = new_figure(self.width, 1.75 * len(self.panels) + 0.4, [missing_note(frame, self, tidy)])
        grid = body.subplots(len(self.panels), len(present), sharex=True, sharey=True, squeeze=False)
        for row, panel in zip(grid, self.panels, strict=True):
            setting = panel.setting(tidy.experiment)
            for axes, method in zip(row, present, strict=True):
                curve, colour = of_cell(points, CellAddress(setting, method)), looks[method].colour
                axes.fill_between(
                    curve["eigenvalue"], floor, curve["value"].clip(lower=floor), color=colour, alpha=0.25
                )
                axes.plot(curve["eigenvalue"], curve["value"], color=colour, linewidth=0.8)
            row[0].set_ylabel(f"{panel.title or partition_title(setting.partition)}\ndensity")
        for axes, method in zip(grid[0], present, strict=True):
            axes.set_title(names[method])
        for axes in grid[-1]:
            axes.set_xlabel("Hessian eigenvalue $λ$")
        grid[0, 0].set(yscale="log", ylim=(floor, 2 * points["value"].max()))
        return figure
