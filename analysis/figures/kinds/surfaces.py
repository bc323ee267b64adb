"""Loss surfaces of final models on a filter-normalised plane (FedLESAM, Figure 3), in 3-D and as contours."""

from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from pydantic import Field

from fedflat.analysis.figures.base import OneSeedLayout, OneSettingLayout, new_figure, plain_numbers
from fedflat.analysis.figures.kinds.grid import grid
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.input.errors import UserError

_COLOURS = "viridis"
Plane = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


class SurfacesLayout(OneSeedLayout, OneSettingLayout):
    """One model per method, all with the same seed, so that directions are the same. `ceiling` cuts off high losses."""

    needs: ClassVar[str] = "surface"
    page_order: ClassVar[int] = 7
    kind: Literal["surfaces"] = "surfaces"
    ceiling: float | None = Field(
        examples=[3.0], default=None, gt=0, description="largest loss that is drawn; null: the largest of all"
    )

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of the axes, the seed, and the cut."""
        cut = f" Losses above {self.ceiling:g} are cut off." if self.ceiling else ""
        return (
            "Dots: the models. Directions a and b: the same two random vectors for all models, scaled to the norms of "
            f"each model's filters. Runs of seed {frame['seed'].iloc[0]}; all panels share the colours and the axis of "
            f"the loss.{cut} Surfaces and λ_max may order methods "
            "differently: steps are large here, in two random directions, and relative to the norms of each model's "
            "filters; λ_max is the curvature per unit of distance at the model, in the steepest direction."
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; colours and heights share one range, so that panels can be compared."""
        (setting,) = self.settings(tidy.experiment)
        seed = self.shown_seed(tidy.experiment)
        planes = {
            method: grid(rows, "a", "b", "loss", self.title)
            for method in self.methods
            if not (rows := of_cell(frame, CellAddress(setting, method))).empty
        }
        losses = np.concatenate([np.empty(0), *(plane.to_numpy(float).ravel() for plane in planes.values())])
        losses = losses[np.isfinite(losses)]
        if losses.size == 0:
            raise UserError(f"nothing to draw for '{self.title}': no finite loss of seed {seed}")
        ceiling = min(self.ceiling or np.inf, float(losses.max()))
        lowest = min(max(float(losses.min()), ceiling * 1e-4), ceiling * 0.99)
        norm, levels = LogNorm(lowest, ceiling), np.geomspace(lowest, ceiling, 13)

        names = method_titles(tidy.experiment)
        figure, body = new_figure(self.width, 3.45, [missing_note(frame, self, tidy)])
        panels = body.add_gridspec(2, len(planes), height_ratios=(1.1, 1))
        for column, (method, plane) in enumerate(planes.items()):
            a, b = np.meshgrid(plane.columns.to_numpy(float), plane.index.to_numpy(float))
            loss = np.clip(plane.to_numpy(float), lowest, ceiling)
            _draw_surface(body.add_subplot(panels[0, column], projection="3d"), (a, b, loss), norm, names[method])
            _draw_contours(body.add_subplot(panels[1, column]), (a, b, loss), norm, levels)
        bar = body.colorbar(ScalarMappable(norm, _COLOURS), ax=list(body.get_axes()), shrink=0.85, aspect=35, pad=0.01)
        bar.set_label("Loss (log colour scale)")
        plain_numbers(bar.ax.yaxis, lowest, ceiling, decades=4)
        return figure


def _draw_contours(axes: Axes, plane: Plane, norm: LogNorm, levels: NDArray[np.float64]) -> None:
    axes.contourf(*plane, levels=levels, norm=norm, cmap=_COLOURS)
    axes.contour(*plane, levels=levels, colors="white", linewidths=0.4)
    axes.plot(0, 0, "o", color="white", markersize=3)
    axes.set(aspect="equal", xlabel="Direction a", ylabel="Direction b")
    axes.grid(False)
    axes.label_outer()


def _draw_surface(axes: Any, plane: Plane, norm: LogNorm, title: str) -> None:
    axes.plot_surface(*plane, cmap=_COLOURS, norm=norm, linewidth=0, rcount=60, ccount=60)
    axes.set_title(title, y=1.0)
    axes.set_zlim(0, norm.vmax)
    axes.set_xlabel("a", labelpad=-10)
    axes.set_ylabel("b", labelpad=-10)
    # The axis's own label would overlap the next panel.
    axes.text2D(1.06, 0.86, "Loss", transform=axes.transAxes, ha="right", fontsize=7)
    axes.locator_params(nbins=3)
    axes.zaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 3, 5, 10]))
    axes.tick_params(pad=-4)
    axes.tick_params(axis="z", pad=-1)
    axes.view_init(elev=28, azim=-55)
    axes.set_box_aspect((1, 1, 0.85), zoom=1.2)
    axes.patch.set_alpha(0)
