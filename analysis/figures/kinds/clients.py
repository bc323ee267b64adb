"""Accuracy of every client, by method: one point per client, and a box (Qu et al., 2022: deviation over clients)."""

from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from fedflat.analysis.figures.base import PanelLayout, count_seeds, new_figure
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.figures.palette import Style, styles
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles
from fedflat.bench.experiments.address import IDS, CellAddress

_LABELS = {
    "test": "Accuracy (%) on the client's\ntest images",
    "train": "Accuracy (%) on the client's\ntraining images",
}


class ClientsLayout(PanelLayout):
    """One row of panels for training or test data, one panel per setting, one line of points per method."""

    needs: ClassVar[str] = "clients"
    page_order: ClassVar[int] = 15
    kind: Literal["clients"] = "clients"
    parts: tuple[Literal["train", "test"], ...] = Field(
        default=("test",), min_length=1, description="a row of panels for each: accuracy on training or on test data"
    )

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows with every client's accuracy."""
        return frame[frame["metric"].isin([f"client_{part}_accuracy" for part in self.parts])]

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of points and boxes."""
        return (
            f"Points: clients of {count_seeds(frame)}; boxes: median and quartiles, whiskers: 5th and 95th percentile; "
            f"diamonds: mean over clients.{self._left_out(frame)}"
        )

    def _left_out(self, frame: pd.DataFrame) -> str:
        """A sentence on the clients without a value; empty if all have one."""
        rows = self.drawn(frame)
        missing = rows[rows["value"].isna()].groupby([*IDS, "seed", "metric"]).size()
        if missing.empty:
            return ""
        return f" Clients whose classes the test set lacks are left out: at most {missing.max()} of a run."

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share both axes."""
        present = [method for method in self.methods if method in set(frame["method"])]
        looks, names = styles(tidy.experiment, present), method_titles(tidy.experiment)
        height = len(self.parts) * (0.19 * len(present) + 0.75)
        figure, body = new_figure(self.width, height, [missing_note(frame, self, tidy)])
        grid = body.subplots(len(self.parts), len(self.panels), sharex=True, sharey=True, squeeze=False)
        for row, part in zip(grid, self.parts, strict=True):
            of_part = frame[frame["metric"] == f"client_{part}_accuracy"]
            for axes, panel in zip(row, self.panels, strict=True):
                setting = panel.setting(tidy.experiment)
                for place, method in enumerate(present):
                    accuracies = of_cell(of_part, CellAddress(setting, method))["value"].dropna().to_numpy(float)
                    if accuracies.size:
                        _draw_clients(axes, accuracies, place, looks[method])
                axes.set(title=panel.heading(setting), xlabel=_LABELS[part])
                axes.tick_params(labelbottom=True)
                axes.grid(visible=False, axis="y")
        grid[0, 0].set_yticks(range(len(present)), [names[method] for method in present])
        grid[0, 0].invert_yaxis()
        grid[0, 0].set_xlim(right=101)
        return figure


def _draw_clients(axes: Axes, accuracies: NDArray[np.float64], place: int, look: Style) -> None:
    spread = place + 0.5 * (_low_discrepancy(len(accuracies)) - 0.5)
    axes.scatter(accuracies, spread, s=4, color=look.colour, alpha=min(0.6, 30 / len(accuracies)), linewidths=0)
    axes.boxplot(
        accuracies,
        positions=[place],
        orientation="horizontal",
        widths=0.6,
        whis=(5, 95),
        showfliers=False,
        showmeans=True,
        manage_ticks=False,
        boxprops={"color": look.colour, "linewidth": 0.9},
        whiskerprops={"color": look.colour, "linewidth": 0.9},
        capprops={"color": look.colour, "linewidth": 0.9},
        medianprops={"color": look.colour, "linewidth": 1.8},
        meanprops={"marker": "D", "markersize": 3, "markerfacecolor": "white", "markeredgecolor": "black"},
    )


def _low_discrepancy(count: int) -> NDArray[np.float64]:
    """`count` numbers in [0, 1), neighbours far apart, equal in every call: multiples of the golden ratio, modulo 1."""
    return np.array([k * 0.6180339887498949 % 1 for k in range(count)], dtype=np.float64)
