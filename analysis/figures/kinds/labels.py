"""How many images of each class every client holds (FedLESAM, Figure 5): one heat map per partition."""

from typing import ClassVar, Literal

import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.figures.base import OneSeedLayout, PanelLayout, new_figure
from fedflat.analysis.figures.heatmap import body_height, body_width, draw_counts
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.tidy import Tidy, of_setting
from fedflat.analysis.layouts.titles import partition_title


class LabelsLayout(OneSeedLayout, PanelLayout):
    """Class counts of one seed's partitions. They are the same for all methods, so the layout may name any method."""

    needs: ClassVar[str] = "partition"
    page_order: ClassVar[int] = 20
    kind: Literal["labels"] = "labels"
    numbers: bool = Field(default=True, description="whether cells show their numbers, if there are few")

    def statistics(self, frame: pd.DataFrame) -> str:
        """The seed of the split."""
        return f"The split of seed {frame['seed'].iloc[0]}, the same for every method; empty: no image of the class."

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share one colour scale."""
        settings = self.settings(tidy.experiment)
        note = missing_note(frame, self, tidy)
        classes = range(int(frame["label"].max()) + 1)
        clients = range(int(frame["client"].max()) + 1)
        tables = []
        for setting in settings:
            rows = of_setting(frame, setting)
            rows = rows[rows["method"] == rows["method"].min()]  # one method's rows: those of the others are equal
            counts = pd.crosstab(rows["client"], rows["label"])
            tables.append(counts.reindex(index=clients, columns=classes, fill_value=0))
        figure, body = new_figure(
            body_width(tables[0], len(tables), self.width), body_height(tables[0], len(tables)), [note]
        )
        headings = [
            panel.title or partition_title(setting.partition)
            for panel, setting in zip(self.panels, settings, strict=True)
        ]
        draw_counts(body, tables, headings, numbers=self.numbers)
        return figure
