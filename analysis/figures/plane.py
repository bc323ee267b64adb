"""Loss and error on the plane through three models (Caldarola et al., Figures 2, 13, 14), as contours."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from pydantic import Field

from analysis.figures.base import OneSeedLayout, Panel, missing_note, new_figure
from analysis.palette import styles
from analysis.tidy import CellKey, Setting, Tidy, of_cell, titles
from bench.errors import UserError
from bench.experiments import Experiment

_COLOURS = "viridis"
_LEVELS = 13
PART = {"train": "Training", "test": "Test"}


class ThroughModelsLayout(OneSeedLayout):
    """A row per cell: loss on the left, error on the right, of one part of the data each."""

    select: Panel
    loss: Literal["train", "test"] = "train"
    error: Literal["train", "test"] = "test"
    ceiling: float | None = Field(default=None, gt=0, description="largest loss that is drawn; null: the largest")

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The one setting."""
        return (self.select.setting(experiment),)

    def statistics(self, frame: pd.DataFrame) -> str:
        """What the axes and the cut mean."""
        cut = f" Losses above {self.ceiling:g} are cut off." if self.ceiling else ""
        return (
            "Coordinates are distances in parameter space from the first model, along the way to the second one and at "
            f"a right angle to it. Seed {frame['seed'].iloc[0]}.{cut}"
        )


class PlaneLayout(ThroughModelsLayout):
    """Final models of methods."""

    needs: ClassVar[str] = "plane"
    kind: Literal["plane"]


class LocalPlaneLayout(ThroughModelsLayout):
    """Local models of clients."""

    needs: ClassVar[str] = "local_plane"
    kind: Literal["local_plane"]


def draw(layout: ThroughModelsLayout, tidy: Tidy, frame: pd.DataFrame) -> Figure:
    """The figure; rows share colours, so that they can be compared."""
    (setting,) = layout.settings(tidy.experiment)
    frame = frame[frame["seed"] == layout.shown_seed(tidy.experiment)]
    planes = {method: rows for method in layout.methods if not (rows := of_cell(frame, CellKey(setting, method))).empty}
    names = titles(tidy.experiment)
    figure, body = new_figure(layout.width, 2.75 * max(1, len(planes)), [missing_note(frame, layout, tidy)])
    grid = body.subplots(max(1, len(planes)), 2, squeeze=False)
    colours = {label: look.colour for label, look in styles(tidy.experiment).items()}
    for column, (value, part) in enumerate((("loss", layout.loss), ("error", layout.error))):
        rows = frame[frame["data"] == part]
        levels, norm = _levels(rows[value].to_numpy(float), layout, value)
        for axes, (method, plane) in zip(grid[:, column], planes.items(), strict=True):
            shown = plane[plane["data"] == part]
            table = shown[shown["model"].isna()].pivot_table(index="y", columns="x", values=value)
            filled = _draw_contours(axes, table, levels, norm)
            _mark_models(axes, shown[shown["model"].notna()], names, colours)
            whose = f" ({names[method]})" if len(planes) > 1 else ""
            axes.set_title(f"{PART[part]} {value}{' (%)' * (value == 'error')}{whose}")
        body.colorbar(filled, ax=list(grid[:, column]), aspect=30, pad=0.02)
    return figure


def _levels(
    values: NDArray[np.float64], layout: ThroughModelsLayout, value: str
) -> tuple[NDArray[np.float64], Normalize]:
    """Of a loss on a log scale, of an error on a linear one."""
    values = values[np.isfinite(values)]
    if values.size == 0:
        raise UserError(f"nothing to draw for '{layout.title}': its plane.csv has no finite {value} of the data named")
    if value == "error":
        levels = np.asarray(MaxNLocator(_LEVELS).tick_values(values.min(), values.max()), dtype=float)
        return levels, Normalize(levels[0], levels[-1])
    highest = min(layout.ceiling or np.inf, float(values.max()))
    lowest = min(max(float(values.min()), highest * 1e-4), highest / 2)
    return np.geomspace(lowest, highest, _LEVELS), LogNorm(lowest, highest)


def _draw_contours(axes: Axes, table: pd.DataFrame, levels: NDArray[np.float64], norm: Normalize) -> QuadContourSet:
    """Of values by y (rows) and x (columns)."""
    x, y = np.meshgrid(table.columns.to_numpy(float), table.index.to_numpy(float))
    z = np.clip(table.to_numpy(float), levels[0], levels[-1])
    filled = axes.contourf(x, y, z, levels=levels, norm=norm, cmap=_COLOURS)
    axes.contour(x, y, z, levels=levels, colors="white", linewidths=0.4)
    axes.set(aspect="equal", xlabel="Distance along u", ylabel="Distance along v")
    axes.grid(False)
    axes.label_outer()
    return filled


def _mark_models(axes: Axes, models: pd.DataFrame, names: Mapping[str, str], colours: Mapping[str, str]) -> None:
    """Each in its method's colour, or white, with its name beside it."""
    for model, x, y in models[["model", "x", "y"]].itertuples(index=False):
        axes.plot(x, y, "o", color=colours.get(model, "white"), markeredgecolor="white", markersize=5)
        axes.annotate(
            names.get(model, model), (x, y), (0, 5), textcoords="offset points", ha="center", fontsize=7,
            color="black", path_effects=[withStroke(linewidth=2, foreground="white")],
        )  # fmt: skip
