"""The largest Hessian eigenvalues of the global model against their index (Caldarola et al. 2022, Figures 5 and 15)."""

from typing import ClassVar, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from fedflat.analysis.figures.base import most_side_by_side, new_figure, whole_numbers
from fedflat.analysis.figures.lines import LinePanelsLayout, draw_lines, label_outer, spread, with_coinciding_note
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.tidy import Tidy


class EigenvaluesLayout(LinePanelsLayout):
    """Panels of eigenvalue against index, side by side."""

    needs: ClassVar[str] = "hessian"
    page_order: ClassVar[int] = 9
    kind: Literal["eigenvalues"] = "eigenvalues"
    scale: Literal["linear", "log"] = Field(default="linear", description="of the y axis")

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of eigenvalues."""
        return frame[frame["metric"] == "eigenvalue"]

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of lines and bands."""
        return self.means(frame)

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share both axes."""
        lines = spread(self.drawn(frame), "index", "value")
        columns = most_side_by_side(len(self.panels))
        height = 2.75 + 2.1 * (-(-len(self.panels) // columns) - 1)
        missing = missing_note(frame, self, tidy)

        def draw(note: str) -> tuple[Figure, list[Axes]]:
            figure, body = new_figure(self.width, height, [note, missing])
            drawn = draw_lines(body, self, tidy, lines, "index", columns=columns)
            for axes in drawn:
                axes.set_yscale(self.scale)
                whole_numbers(axes.xaxis)
            label_outer(drawn, columns, "Eigenvalue index $i$", "Hessian eigenvalue $λ_i$")
            return figure, drawn

        return with_coinciding_note(draw, self, tidy, lines, "index")
