"""Tables of medians with their spread, as Markdown and as JSON."""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fedflat.bench.files.atomic import write_text
from fedflat.bench.files.text_table import markdown
from studies.marked_text import marks, part, rewrite_part

PART = "bench"
"""The part of a document that holds the report."""


@dataclass(frozen=True)
class Spread:
    """Repeated measurements, in the order in which they were taken."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median value."""
        return statistics.median(self.values)

    def __str__(self) -> str:
        """Median [smallest to largest]; a single value without a range."""
        if len(self.values) == 1:
            return number(self.values[0])
        return f"{number(self.median)} [{number(min(self.values))} to {number(max(self.values))}]"

    def __mul__(self, factor: float) -> "Spread":
        return Spread(tuple(v * factor for v in self.values))

    def __add__(self, other: "Spread") -> "Spread":
        return Spread(tuple(a + b for a, b in zip(self.values, other.values, strict=True)))

    def __sub__(self, other: "Spread") -> "Spread":
        return self + other * -1

    def __truediv__(self, other: "Spread") -> "Spread":
        """Ratios of what was measured in the same turn, so that a machine's drift cancels."""
        return Spread(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def percent_over(self, other: "Spread") -> "Spread":
        """By how many percent these exceed the values of the same turns."""
        return Spread(tuple(100 * (ratio - 1) for ratio in (self / other).values))


Cell = str | int | float | Spread | None
"""A cell of a table; None is left empty."""


@dataclass(frozen=True)
class Table:
    """Rows under a header, and one or two sentences about them."""

    about: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]

    def markdown(self) -> str:
        """The sentence, then the table; columns with numbers are set to the right."""
        columns = enumerate(zip(*self.rows, strict=True))
        numeric = {k for k, column in columns if not all(isinstance(cell, str) for cell in column)}
        rows = ([_shown(cell) for cell in row] for row in self.rows)
        return "\n".join([self.about, "", *markdown(self.header, rows, right=numeric)])

    def data(self) -> dict[str, Any]:
        """The same with all measured values."""
        rows = [[list(cell.values) if isinstance(cell, Spread) else cell for cell in row] for row in self.rows]
        return {"about": self.about, "header": list(self.header), "rows": rows}


@dataclass(frozen=True)
class Section:
    """Tables under a heading."""

    title: str
    tables: Sequence[Table]

    def markdown(self) -> str:
        """The tables."""
        return "\n\n".join(table.markdown() for table in self.tables)

    def data(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"title": self.title, "tables": [table.data() for table in self.tables]}


def number(value: float) -> str:
    """Three digits, more before the point if there are."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    for decimals, least in ((1, 10), (2, 1), (3, 0.1)):
        if abs(value) >= least:
            return f"{value:.{decimals}f}"
    return f"{value:.2g}"


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, int):
        return f"{cell:,}"
    return number(cell) if isinstance(cell, float) else str(cell)


@dataclass(frozen=True)
class Report:
    """Facts about the machine and the measurement, and the text of sections by title."""

    facts: Mapping[str, str]
    sections: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> Self:
        """From what `markdown` wrote."""
        head, *sections = re.split(r"^### ", text.strip(), flags=re.MULTILINE)
        facts = re.findall(r"^- ([^:]*): (.*)$", head, flags=re.MULTILINE)
        return cls(dict(facts), {title: rest.strip() for title, _, rest in (s.partition("\n") for s in sections)})

    def markdown(self) -> str:
        """A list of the facts, then the sections."""
        facts = "\n".join(f"- {name}: {value}" for name, value in self.facts.items())
        return "\n\n".join([facts, *(f"### {title}\n\n{text}" for title, text in self.sections.items())])


def existing_report(file: Path) -> Report | None:
    """The report in a Markdown file; None if there is no file, or nothing between its marks.

    A `UserError` if the file has no place for a report, which is between the two marks.
    """
    if not file.exists():
        return None
    inside = part(file, PART)
    return Report.read(inside) if inside else None


def write_report(file: Path, report: Report) -> None:
    """Write a report into a new Markdown file, or between the marks of an existing one; its other text remains."""
    if not file.exists():
        write_text(file, "\n".join((*marks(PART), "")))
    rewrite_part(file, PART, report.markdown())
