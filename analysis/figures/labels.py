"""How many images of each class every client holds (FedLESAM, Figure 5): one heat map per partition."""

from typing import ClassVar, Literal

import pandas as pd
import seaborn
from matplotlib.figure import Figure
from pydantic import Field

from analysis.figures.base import PanelLayout, missing_note, new_figure
from analysis.tidy import Tidy, of_setting
from bench.experiments import Experiment

_COLOURS = "mako_r"


class LabelsLayout(PanelLayout):
    """Class counts of one seed's partitions. All methods have the same ones: the layout names any of them."""

    needs: ClassVar[str] = "partition"
    kind: Literal["labels"]
    seed: int | None = Field(default=None, description="whose partitions; null: the experiment's first seed")
    numbers: bool = True

    def shown_seed(self, experiment: Experiment) -> int:
        """The seed whose partitions are shown."""
        return super().shown_seed(experiment) if self.seed is None else self.seed

    def statistics(self, frame: pd.DataFrame) -> str:
        """Whose split this is."""
        return f"The split of seed {frame['seed'].iloc[0]}, the same for every method; empty: no image of the class."


def draw(layout: LabelsLayout, tidy: Tidy, frame: pd.DataFrame) -> Figure:
    """The figure; panels share one colour scale."""
    settings = layout.settings(tidy.experiment)
    note = missing_note(frame, layout, tidy)
    # One method's images: the others hold the same.
    frame = frame.drop_duplicates(["dataset", "partition", "participation", "client", "index"])
    classes = range(int(frame["label"].max()) + 1)
    clients = range(int(frame["client"].max()) + 1)
    tables = [
        pd.crosstab(rows["client"], rows["label"]).reindex(index=clients, columns=classes, fill_value=0)
        for rows in (of_setting(frame, setting) for setting in settings)
    ]
    largest = max(int(table.to_numpy().max()) for table in tables)

    height = min(0.5 + 0.165 * len(clients), 9)
    figure, body = new_figure(layout.width, height, [note])
    grid = body.subplots(1, len(settings), sharey=True, squeeze=False)
    for axes, panel, setting, table in zip(grid.flat, layout.panels, settings, tables, strict=True):
        seaborn.heatmap(
            table,
            ax=axes,
            mask=table == 0,
            cmap=_COLOURS,
            vmin=0,
            vmax=largest,
            cbar=False,
            annot=layout.numbers,
            fmt="d",
            annot_kws={"fontsize": 7},
            linewidths=0.5,
            linecolor="white",
        )
        axes.set(xlabel="Class", ylabel="", title=panel.title or setting.partition_title)
        axes.tick_params(length=0, rotation=0)
        axes.grid(False)
    grid.flat[0].set_ylabel("Client")
    bar = body.colorbar(grid.flat[0].collections[0], ax=list(grid.flat), aspect=35, pad=0.01)
    bar.set_label("Training images")
    bar.outline.set_visible(False)
    return figure
