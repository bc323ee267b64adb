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
from analysis.tidy import CellKey, Setting, Tidy, of_cell, settings, titles
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
    shown = {value: frame[frame["data"] == part] for value, part in (("loss", layout.loss), ("error", layout.error))}
    if any(not np.isfinite(rows[value].to_numpy(float)).any() for value, rows in shown.items()):
        raise UserError(f"nothing to draw for '{layout.title}': no finite values of the seed and the images named")
    names = {place.partition: place.partition_title for place in settings(tidy.experiment)} | titles(tidy.experiment)
    colours = {label: look.colour for label, look in styles(tidy.experiment).items()}
    height = sum(0.36 * layout.width * _height_over_width(rows) + 0.65 for rows in planes.values())
    figure, body = new_figure(layout.width, height, [missing_note(frame, layout, tidy)])
    grid = body.subplots(len(planes), 2, squeeze=False)
    for column, (value, part) in zip(grid.T, (("loss", layout.loss), ("error", layout.error)), strict=True):
        levels, norm = _levels(shown[value][value], layout.ceiling if value == "loss" else None, value)
        for axes, (method, plane) in zip(column, planes.items(), strict=True):
            rows = plane[plane["data"] == part]
            table = rows[rows["model"].isna()].pivot_table(index="y", columns="x", values=value)
            filled = _draw_contours(axes, table, levels, norm)
            _mark_models(axes, rows[rows["model"].notna()], names, colours)
            whose = f", {names[method]}" if len(planes) > 1 else ""
            axes.set_title(f"{PART[part]} {value}{' (%)' * (value == 'error')}{whose}")
        column[-1].set_xlabel("Distance along u")
        body.colorbar(filled, ax=list(column), aspect=15 * len(planes), pad=0.02, format="%.3g")
    for axes in grid[:, 0]:
        axes.set_ylabel("Distance along v")
    return figure


def _height_over_width(plane: pd.DataFrame) -> float:
    width, height = (float(np.ptp(plane[name].to_numpy(float))) for name in ("x", "y"))
    return min(1.6, height / width)


def _levels(values: pd.Series, ceiling: float | None, value: str) -> tuple[NDArray[np.float64], Normalize]:
    """Of a loss on a log scale, of an error on a linear one."""
    finite = values[np.isfinite(values)]
    lowest, highest = float(finite.min()), min(ceiling or np.inf, float(finite.max()))
    if value == "error":
        levels = np.asarray(MaxNLocator(_LEVELS, min_n_ticks=2).tick_values(lowest, highest), dtype=float)
        return levels, Normalize(levels[0], levels[-1])
    lowest = min(max(lowest, highest * 1e-4), highest * 0.99)
    return np.geomspace(lowest, highest, _LEVELS), LogNorm(lowest, highest)


def _draw_contours(axes: Axes, table: pd.DataFrame, levels: NDArray[np.float64], norm: Normalize) -> QuadContourSet:
    """Of values by y (rows) and x (columns)."""
    x, y = np.meshgrid(table.columns.to_numpy(float), table.index.to_numpy(float))
    z = np.clip(table.to_numpy(float), levels[0], levels[-1])
    filled = axes.contourf(x, y, z, levels=levels, norm=norm, cmap=_COLOURS)
    axes.contour(x, y, z, levels=levels, colors="white", linewidths=0.4)
    axes.set(aspect="equal")
    axes.grid(False)
    return filled


def _mark_models(axes: Axes, models: pd.DataFrame, names: Mapping[str, str], colours: Mapping[str, str]) -> None:
    """Each in its method's colour, or white, with its name beside it."""
    outline = [withStroke(linewidth=2, foreground="white")]
    for model, x, y in models[["model", "x", "y"]].itertuples(index=False):
        axes.plot(x, y, "o", color=colours.get(model, "white"), markeredgecolor="black", markersize=4.5)
        axes.annotate(
            names.get(model, model), (x, y), (0, 5), textcoords="offset points", ha="center", fontsize=7,
            path_effects=outline,
        )  # fmt: skip
