"""λ_max of every client's local model on its own data against round (Caldarola et al. 2022, Figures 4 and 16)."""

from typing import ClassVar, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.figures.base import Body, PanelLayout, count_seeds, new_figure, plain_numbers, whole_numbers
from fedflat.analysis.figures.heatmap import draw_rounds
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.figures.palette import Style, styles
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles, partition_title
from fedflat.bench.experiments.address import CellAddress

_LAMBDA = "$λ_{\\max}$"
_FEW = 8
"""With so few rounds, each column of a map is labelled."""


class ClientEigenvaluesLayout(PanelLayout):
    """One row of panels per setting, one column per method. Panels show curves over the rounds, or a map with rounds
    from left to right and clients from top to bottom, of one seed."""

    needs: ClassVar[str] = "client_hessian"
    page_order: ClassVar[int] = 11
    kind: Literal["client_eigenvalues"] = "client_eigenvalues"
    form: Literal["curves", "map"] = Field(
        default="curves", description="curves over the rounds, or a map of clients and rounds"
    )
    rounds: tuple[int, ...] | None = Field(
        examples=[[10, 20, 30]],
        default=None,
        min_length=1,
        description="the rounds that are shown; null, or if runs store none of them: all",
    )
    scale: Literal["linear", "log"] = Field(default="log", description="of the eigenvalues: y axis or colours")

    @property
    def shows_one_seed(self) -> bool:
        """Maps are of one seed, because client 3 of another seed holds other images."""
        return self.form == "map"

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of the rounds that are shown."""
        shown = frame[frame["round"].isin(self.rounds or ())]
        return frame if shown.empty else shown

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands, or of a map's columns and colours."""
        shown = self.drawn(frame)
        lost = int(shown["lambda_max"].isna().sum())
        left_out = f" Left out: {lost} local models whose gradient is not finite." if lost else ""
        clients, rounds = frame.groupby("seed")["client"].nunique().max(), sorted(shown["round"].unique())
        if self.form == "map":
            which = (
                ", ".join(map(str, rounds)) if len(rounds) <= _FEW else f"{len(rounds)}, {rounds[0]} to {rounds[-1]}"
            )
            return (
                f"Seed {frame['seed'].iloc[0]}; {clients} clients; rounds: {which}; one colour scale for all.{left_out}"
            )
        return (
            f"Thin lines: one client each, {clients} clients for each of {count_seeds(frame)}; "
            f"thick lines: their median; bands: from the first to the third quartile.{left_out}"
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; all panels share their axes and colours."""
        names, rows = method_titles(tidy.experiment), self.drawn(frame)
        present = [method for method in self.methods if method in set(frame["method"])]
        settings = [panel.setting(tidy.experiment) for panel in self.panels]
        figure, body = new_figure(self.width, 1.75 * len(settings) + 0.4, [missing_note(frame, self, tidy)])
        grid = body.subplots(len(settings), len(present), sharex=True, sharey=True, squeeze=False)
        panels = {CellAddress(s, m): axes for s, row in zip(settings, grid, strict=True)
                  for m, axes in zip(present, row, strict=True)}  # fmt: skip
        if self.form == "map":
            self._draw_maps(body, panels, rows)
        else:
            self._draw_curves(panels, rows, tidy)
        for line, panel, setting in zip(grid, self.panels, settings, strict=True):
            label = "Client" if self.form == "map" else f"clients’ {_LAMBDA}"
            line[0].set_ylabel(f"{panel.title or partition_title(setting.partition)}\n{label}")
        for axes, method in zip(grid[0], present, strict=True):
            axes.set_title(names[method])
        for axes in grid[-1]:
            axes.set_xlabel("Round")
        return figure

    def _draw_curves(self, panels: dict[CellAddress, Axes], rows: pd.DataFrame, tidy: Tidy) -> None:
        """A curve per client, and their median."""
        looks = styles(tidy.experiment, self.methods)
        for cell, axes in panels.items():
            _draw_clients(axes, of_cell(rows, cell), looks[cell.method])
            whole_numbers(axes.xaxis)
            axes.set_yscale(self.scale)

    def _draw_maps(self, body: Body, panels: dict[CellAddress, Axes], rows: pd.DataFrame) -> None:
        """Maps with the same rounds and clients; an eigenvalue that is not positive has no colour on a log scale."""
        clients, rounds = sorted(rows["client"].unique()), sorted(rows["round"].unique())
        values = rows["lambda_max"][rows["lambda_max"] > 0] if self.scale == "log" else rows["lambda_max"]
        norm = (LogNorm if self.scale == "log" else Normalize)(values.min(), values.max())
        for cell, axes in panels.items():
            table = of_cell(rows, cell).pivot_table(index="client", columns="round", values="lambda_max")
            mesh = draw_rounds(axes, table.reindex(index=clients, columns=rounds), norm, even=len(rounds) <= _FEW)
        bar = body.colorbar(mesh, ax=list(panels.values()), aspect=30, pad=0.01)
        bar.set_label(f"Clients’ {_LAMBDA}")
        if self.scale == "log":
            plain_numbers(bar.ax.yaxis, *mesh.get_clim())


def _draw_clients(axes: Axes, rows: pd.DataFrame, look: Style) -> None:
    for _, line in rows.groupby(["seed", "client"]):
        axes.plot(line["round"], line["lambda_max"], ".-", color=look.colour, linewidth=0.5, alpha=0.35, markersize=1.5)
    if rows.empty:
        return
    low, middle, high = (rows.groupby("round")["lambda_max"].quantile(share) for share in (0.25, 0.5, 0.75))
    axes.fill_between(middle.index, low, high, color=look.colour, alpha=0.18, linewidth=0)
    axes.plot(middle.index, middle, color=look.colour, linewidth=1.8, marker="o", markersize=2.5)
