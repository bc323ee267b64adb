"""The global model's accuracy or feature norm on each class or client, by round (Caldarola et al., Figures 3 and 7)."""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from analysis.figures.base import OneSeedLayout, OneSettingLayout, new_figure
from analysis.figures.notes import missing_note
from analysis.layouts.tidy import Tidy, of_cell
from analysis.layouts.titles import method_titles
from bench.experiments.address import CellAddress
from bench.input.errors import UserError

_LABELS = {"accuracy": "Accuracy (%)", "feature_norm": "Mean norm of the features"}
_DATA = {"class": "each class's test images", "client": "each client's training images"}


class ClientRoundsLayout(OneSeedLayout, OneSettingLayout):
    """One map per method, with rounds from left to right and classes or clients from top to bottom; one seed."""

    needs: ClassVar[str] = "client_rounds"
    kind: Literal["client_rounds"] = "client_rounds"
    group: Literal["class", "client"] = "class"
    quantity: Literal["accuracy", "feature_norm"] = "accuracy"
    columns: int = Field(default=4, ge=1, description="maps side by side")

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of classes, or those of clients."""
        return frame[frame["group"] == self.group]

    def statistics(self, frame: pd.DataFrame) -> str:
        """The seed, the images and the rounds."""
        rounds = sorted(frame["round"].unique())
        return (
            f"Seed {frame['seed'].iloc[0] if self.seed is None else self.seed}; on {_DATA[self.group]}, after "
            f"{len(rounds)} rounds from {rounds[0]} to {rounds[-1]}; one colour scale for all."
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; maps share axes and colours."""
        (setting,) = self.settings(tidy.experiment)
        seed, names = self.shown_seed(tidy.experiment), method_titles(tidy.experiment)
        shown = self.drawn(frame)
        maps = {
            method: rows.pivot_table(index="number", columns="round", values=self.quantity, dropna=False)
            for method in self.methods
            if not (rows := of_cell(shown, CellAddress(setting, method))).empty
        }
        if not maps:
            raise UserError(f"nothing to draw for '{self.title}': no run of seed {seed}")
        columns = min(self.columns, len(maps))
        lines = -(-len(maps) // columns)
        count = max(map(len, maps.values()))
        height = lines * min(max(0.35 + 0.08 * count, 1.2), 2.4) + 0.35
        figure, body = new_figure(self.width, height, [missing_note(frame, self, tidy)])
        grid = body.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        values = np.concatenate([table.to_numpy(float).ravel() for table in maps.values()])
        lowest, highest = (0, 100) if self.quantity == "accuracy" else (np.nanmin(values), np.nanmax(values))
        for axes, (method, table) in zip(grid.flat, maps.items(), strict=False):
            # The columns of two neighbouring saved rounds meet half way between them.
            image = axes.pcolormesh(
                _edges(table.columns.to_numpy(float)), np.arange(len(table) + 1) - 0.5, table.to_numpy(float),
                cmap="viridis", vmin=lowest, vmax=highest, rasterized=True,
            )  # fmt: skip
            axes.set_title(names[method])
            axes.grid(visible=False)
            axes.yaxis.get_major_locator().set_params(integer=True)
        grid[0, 0].invert_yaxis()
        for axes in grid.flat[len(maps) :]:
            axes.set_visible(False)
        figure_axes = list(grid.flat[: len(maps)])
        for axes in figure_axes[-columns:]:
            axes.set_xlabel("Communication round")
            axes.tick_params(labelbottom=True)
        for axes in grid[:, 0]:
            axes.set_ylabel(self.group.capitalize())
        body.colorbar(image, ax=list(grid.flat), aspect=30, pad=0.01).set_label(_LABELS[self.quantity])
        body.suptitle(self.select.heading(setting), fontsize=8)
        return figure


def _edges(rounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The edges of the columns of saved rounds: half way between neighbouring rounds."""
    if len(rounds) == 1:
        return np.array([rounds[0] - 0.5, rounds[0] + 0.5])
    between = (rounds[1:] + rounds[:-1]) / 2
    return np.concatenate([[2 * rounds[0] - between[0]], between, [2 * rounds[-1] - between[-1]]])
