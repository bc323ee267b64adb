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

from fedflat.analysis.figures.base import OneSeedLayout, OneSettingLayout, new_figure
from fedflat.analysis.figures.kinds.grid import grid
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.figures.palette import styles
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles, partition_title
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.input.errors import UserError

_COLOURS = "viridis"
_LEVELS = 13
_HIGHEST = 1.6  # largest ratio of a panel's height to the available width
_TICK = 0.5  # inches for one tick of the x axis and its label
PART = {"train": "Training", "test": "Test"}


class ThroughModelsLayout(OneSeedLayout, OneSettingLayout):
    """One row per cell: loss on the left, error on the right, each on training or test data."""

    loss: Literal["train", "test"] = Field(default="train", description="images of the loss")
    error: Literal["train", "test"] = Field(default="test", description="images of the error")
    ceiling: float | None = Field(
        examples=[3.0], default=None, gt=0, description="largest loss that is drawn; null: the largest"
    )

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of the axes, the seed, and the cut."""
        cut = f" Losses above {self.ceiling:g} are cut off." if self.ceiling else ""
        return (
            "Coordinates are distances in parameter space from the first model: u points to the second model, v is "
            f"orthogonal to u. Seed {frame['seed'].iloc[0]}.{cut}"
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; rows share colours, so that they can be compared."""
        (setting,) = self.settings(tidy.experiment)
        planes = {
            method: rows for method in self.methods if not (rows := of_cell(frame, CellAddress(setting, method))).empty
        }
        shown = {value: frame[frame["data"] == part] for value, part in (("loss", self.loss), ("error", self.error))}
        if any(not np.isfinite(rows[value].to_numpy(float)).any() for value, rows in shown.items()):
            raise UserError(f"nothing to draw for '{self.title}': no finite values for the given seed and images")
        names = {
            place.partition: partition_title(place.partition) for place in tidy.experiment.settings
        } | method_titles(tidy.experiment)
        colours = {label: look.colour for label, look in styles(tidy.experiment).items()}
        height = sum(_panel_size(self, rows)[1] + 0.65 for rows in planes.values()) + 0.1
        figure, body = new_figure(self.width, height, [missing_note(frame, self, tidy)])
        panels = body.subplots(len(planes), 2, squeeze=False)
        for column, (value, part) in zip(panels.T, (("loss", self.loss), ("error", self.error)), strict=True):
            levels, norm = _levels(shown[value][value], self.ceiling if value == "loss" else None, value)
            for axes, (method, plane) in zip(column, planes.items(), strict=True):
                rows = plane[plane["data"] == part]
                table = grid(rows[rows["model"].isna()], "x", "y", value, self.title)
                filled = _draw_contours(axes, table, levels, norm)
                _mark_models(axes, rows[rows["model"].notna()], names, colours)
                whose = f", {names[method]}" if len(planes) > 1 else ""
                axes.xaxis.set_major_locator(MaxNLocator(max(2, int(_panel_size(self, plane)[0] / _TICK))))
                axes.set_title(f"{PART[part]} {value}{' (%)' * (value == 'error')}{whose}")
            column[-1].set_xlabel("Distance along u")
            body.colorbar(filled, ax=list(column), aspect=15 * len(planes), pad=0.02, format=_shortest(levels))
        for axes in panels[:, 0]:
            axes.set_ylabel("Distance along v")
        _settle_around_panels(figure)
        return figure


class PlaneLayout(ThroughModelsLayout):
    """The plane through the final models of three methods, or of three partitions."""

    needs: ClassVar[str] = "plane"
    page_order: ClassVar[int] = 13
    kind: Literal["plane"] = "plane"


class LocalPlaneLayout(ThroughModelsLayout):
    """The plane through the local models of three clients."""

    needs: ClassVar[str] = "local_plane"
    page_order: ClassVar[int] = 14
    kind: Literal["local_plane"] = "local_plane"


def _panel_size(layout: ThroughModelsLayout, plane: pd.DataFrame) -> tuple[float, float]:
    """Width and height of a panel in inches: as wide as possible without exceeding the largest height."""
    width, height = (float(np.ptp(plane[name].to_numpy(float))) for name in ("x", "y"))
    room, shape = 0.36 * layout.width, height / width
    return room * min(1, _HIGHEST / shape), room * min(_HIGHEST, shape)


def _settle_around_panels(figure: Figure) -> None:
    """Repeat the layout until labels do not overlap: each pass uses the panel sizes that the pass before has drawn.

    Panels keep the aspect ratio of their planes, so that a pass draws some of them smaller than their room.
    """
    for _ in range(3):
        figure.draw_without_rendering()


def _shortest(levels: NDArray[np.float64]) -> str:
    """The format with the fewest digits, at least three, in which all levels are different."""
    texts = {digits: {f"{level:.{digits}g}" for level in levels} for digits in range(3, 9)}
    return f"%.{next((digits for digits, shown in texts.items() if len(shown) == len(levels)), 8)}g"


def _levels(values: pd.Series, ceiling: float | None, value: str) -> tuple[NDArray[np.float64], Normalize]:
    """The levels of contours and their colour scale: logarithmic for a loss, linear for an error."""
    finite = values[np.isfinite(values)]
    lowest, highest = float(finite.min()), min(ceiling or np.inf, float(finite.max()))
    if value == "error":
        levels = np.asarray(MaxNLocator(_LEVELS, min_n_ticks=2).tick_values(lowest, highest), dtype=float)
        return levels, Normalize(levels[0], levels[-1])
    lowest = min(max(lowest, highest * 1e-4), highest * 0.99)
    return np.geomspace(lowest, highest, _LEVELS), LogNorm(lowest, highest)


def _draw_contours(axes: Axes, table: pd.DataFrame, levels: NDArray[np.float64], norm: Normalize) -> QuadContourSet:
    """Draw contours of a table of values by y (rows) and x (columns)."""
    x, y = np.meshgrid(table.columns.to_numpy(float), table.index.to_numpy(float))
    z = np.clip(table.to_numpy(float), levels[0], levels[-1])
    filled = axes.contourf(x, y, z, levels=levels, norm=norm, cmap=_COLOURS)
    axes.contour(x, y, z, levels=levels, colors="white", linewidths=0.4)
    axes.set(aspect="equal")
    axes.grid(False)
    return filled


def _mark_models(axes: Axes, models: pd.DataFrame, names: Mapping[str, str], colours: Mapping[str, str]) -> None:
    """Mark each model in the colour of its method, or in white, with its name."""
    outline = [withStroke(linewidth=2, foreground="white")]
    for model, x, y in models[["model", "x", "y"]].itertuples(index=False):
        axes.plot(x, y, "o", color=colours.get(model, "white"), markeredgecolor="black", markersize=4.5)
        axes.annotate(
            names.get(model, model), (x, y), (0, 5), textcoords="offset points", ha="center", fontsize=7,
            path_effects=outline,
        )  # fmt: skip
