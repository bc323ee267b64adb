"""The global model's accuracy or feature norm on each class or client, by round (Caldarola et al., Figures 3 and 7)."""

from collections.abc import Iterable
from typing import ClassVar, Literal

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.figures.base import OneSeedLayout, OneSettingLayout, new_figure, whole_numbers
from fedflat.analysis.figures.heatmap import draw_rounds
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.clients import over_how_many
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.input.bounds import Columns
from fedflat.bench.input.errors import UserError

_LABELS = {"accuracy": "Accuracy (%)", "feature_norm": "Mean norm of the features"}
_DATA = {"class": "each class's test images", "client": "each client's training images"}


class ClientRoundsLayout(OneSeedLayout, OneSettingLayout):
    """One panel per method, of one seed: a map with rounds from left to right and classes or clients from top to
    bottom, or curves over the rounds."""

    needs: ClassVar[str] = "client_rounds"
    page_order: ClassVar[int] = 16
    kind: Literal["client_rounds"] = "client_rounds"
    group: Literal["class", "client"] = Field(default="class", description="a row or curve for each of them")
    quantity: Literal["accuracy", "feature_norm"] = Field(default="accuracy", description="what is shown")
    form: Literal["map", "curves"] = Field(
        default="map", description="curves: one per class or client, and their mean over the test set"
    )
    columns: Columns = Field(default=4, description="panels side by side")

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of classes, or those of clients."""
        return frame[frame["group"] == self.group]

    def statistics(self, frame: pd.DataFrame) -> str:
        """The seed, the images, the rounds, and the meaning of colours or lines."""
        rounds = sorted(frame["round"].unique())
        seed = frame["seed"].iloc[0] if self.seed is None else self.seed
        # A class without test images has no value in any round.
        of_classes = frame[frame["group"] == "class"].groupby("number")[self.quantity].max().to_numpy(float)
        classes = over_how_many(of_classes, "classes")
        curves = f"thin lines: one {self.group} each; thick black line: mean over {classes}, on the test images"
        return (
            f"Seed {seed}; on {_DATA[self.group]}, after {len(rounds)} rounds from {rounds[0]} to {rounds[-1]}; "
            f"{curves if self.form == 'curves' else 'one colour scale for all'}."
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share axes and colours."""
        (setting,) = self.settings(tidy.experiment)
        names, rows = method_titles(tidy.experiment), self.drawn(frame)
        cells = {method: CellAddress(setting, method) for method in self.methods}
        tables = {
            method: _table(shown, self.quantity)
            for method, cell in cells.items()
            if not (shown := of_cell(rows, cell)).empty
        }
        if not tables:
            raise UserError(f"nothing to draw for '{self.title}': no run of seed {self.shown_seed(tidy.experiment)}")
        columns = min(self.columns, len(tables))
        lines = -(-len(tables) // columns)
        height = 2.2 if self.form == "curves" else min(max(0.35 + 0.08 * max(map(len, tables.values())), 1.2), 2.4)
        figure, body = new_figure(self.width, lines * height + 0.35, [missing_note(frame, self, tidy)])
        grid = body.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat[len(tables) :]:
            axes.set_visible(False)
        panels = dict(zip(tables, grid.flat, strict=False))
        for method, axes in panels.items():
            axes.set_title(names[method])
            axes.tick_params(labelbottom=True)
            if self.form == "curves":
                of_classes = of_cell(frame[frame["group"] == "class"], cells[method])
                _draw_curves(axes, tables[method], _table(of_classes, self.quantity).mean())
        for axes in list(panels.values())[-columns:]:
            axes.set_xlabel("Communication round")
        for axes in grid[:, 0]:
            axes.set_ylabel(_LABELS[self.quantity] if self.form == "curves" else self.group.capitalize())
        if self.form == "map":
            norm = self._scale(tables.values())
            image = [draw_rounds(axes, tables[method], norm) for method, axes in panels.items()][-1]
            body.colorbar(image, ax=list(grid.flat), aspect=30, pad=0.01).set_label(_LABELS[self.quantity])
        elif self.quantity == "accuracy":
            grid[0, 0].set_ylim(0, 100)
        body.suptitle(self.select.heading(setting), fontsize=8)
        return figure

    def _scale(self, tables: Iterable[pd.DataFrame]) -> Normalize:
        """The colour scale of all maps."""
        values = np.concatenate([table.to_numpy(float).ravel() for table in tables])
        return Normalize(0, 100) if self.quantity == "accuracy" else Normalize(np.nanmin(values), np.nanmax(values))


def _table(rows: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """The values of classes or clients (rows) by round (columns)."""
    return rows.pivot_table(index="number", columns="round", values=quantity, dropna=False)


def _draw_curves(axes: Axes, table: pd.DataFrame, mean: pd.Series) -> None:
    """A thin curve for each row, with a colour of its own, and a thick one for the mean."""
    colours = matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, len(table)))
    for colour, (_, curve) in zip(colours, table.iterrows(), strict=True):
        axes.plot(curve.index, curve, color=colour, linewidth=0.5, alpha=0.6, marker="." if len(curve) == 1 else "")
    axes.plot(mean.index, mean, color="black", linewidth=1.8, marker="." if len(mean) == 1 else "", label="test set")
    axes.legend(loc="upper left", framealpha=0.8, edgecolor="none")
    whole_numbers(axes.xaxis)
