"""A table of a report as Markdown, LaTeX and aligned columns, and its numbers as text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.tables.formats import ampersands, escape_latex, latex_table, markdown_notes, text_width
from fedflat.bench.files.text_table import aligned, markdown, without_html

NO_NUMBER = "–"

OWN_ROW = "▸ "
"""Before the name of the compared method. Bold marks the best values, in tables of papers."""


@dataclass(frozen=True)
class ReportTable:
    """A table of text with the frame behind it. `own`: the number of the row of the compared method, if it has one,
    which a pointer marks; `report`: the beginning of its label in LaTeX."""

    name: str
    caption: Caption
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    frame: pd.DataFrame
    own: int | None = None
    report: str = "compare"

    @property
    def _right(self) -> range:
        return range(1, len(self.header))

    def text(self) -> str:
        """Columns for a terminal, without caption."""
        return "\n".join(aligned([self.header, *self._marked(self.rows, OWN_ROW)], right=self._right))

    def markdown(self, level: int = 2) -> str:
        """The title, as a heading of this level, one pipe table and the notes."""
        rows = markdown(self.header, self._marked(self.rows, OWN_ROW), right=self._right)
        lines = [without_html(self.caption.text), "", *rows]
        return "\n".join([f"{'#' * level} {self.caption.title}", "", *lines, *markdown_notes(self.caption)]) + "\n"

    def latex(self) -> str:
        """A `table` environment."""
        lines = [ampersands([escape_latex(cell) for cell in self.header]), r"\midrule"]
        cells = [list(map(escape_latex, row)) for row in self.rows]
        lines += map(ampersands, self._marked(cells, r"$\triangleright$ "))
        width = text_width([self.header, *self.rows])
        return latex_table(self.caption, f"{self.report}-{self.name}", f"l{'r' * len(self._right)}", lines, width)

    def _marked(self, rows: Sequence[Sequence[str]], mark: str) -> list[list[str]]:
        return [[f"{mark}{row[0]}", *row[1:]] if k == self.own else list(row) for k, row in enumerate(rows)]


def with_lost(mean: str, lost: int, runs: int, word: str = "diverged") -> str:
    """A mean of measured runs, with the number of those without a value: 71.20 (2 of 10 diverged).

    Without any mean (a dash): diverged (10 of 10).
    """
    if not lost:
        return mean
    return f"{word} ({lost} of {runs})" if mean == NO_NUMBER else f"{mean} ({lost} of {runs} {word})"


def with_interval(value: float, low: float, high: float, form: str) -> str:
    """A number with its interval, if it has one."""
    ends = "" if math.isnan(low) else f" [{number(low, form)}, {number(high, form)}]"
    return number(value, form) + ends


def number(value: float, form: str) -> str:
    """A number as text, with a minus sign; a dash for none."""
    return NO_NUMBER if math.isnan(value) else format(value + 0.0, form).replace("-", "−")
