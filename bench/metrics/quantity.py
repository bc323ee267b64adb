"""What a measured number is, for everything that shows it: title, unit, direction, and its place in tables of runs."""

from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower", "none"]
"""Whether higher or lower values of a quantity are better."""


@dataclass(frozen=True)
class Quantity:
    """A measured number in words, declared where it is computed.

    `title` continues a sentence; `unit` is %, points, GB, ... or empty. `short` is a shorter name for axes and lists,
    such as a symbol; by default the title. `of_runs`: its place among the columns of a table of runs, which pages,
    comparisons and studies read; None: it is no such column. `is_flatness`: lower values are flatter models.
    """

    title: str
    better: Better = "none"
    unit: str = ""
    short: str = ""
    of_runs: int | None = None
    is_flatness: bool = False

    @property
    def name(self) -> str:
        """The short name."""
        return self.short or self.title

    @property
    def with_unit(self) -> str:
        """The title and the unit: test accuracy (%)."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def axis(self) -> str:
        """The short name and the unit, as a heading: Test accuracy (%)."""
        start = self.name[:1].upper() if self.name.isascii() else self.name[:1]
        return f"{start}{self.name[1:]} ({self.unit})" if self.unit else f"{start}{self.name[1:]}"

    @property
    def range(self) -> tuple[float, float]:
        """The possible values over rounds: percentages, or numbers from zero."""
        return (0.0, 100.0) if self.unit == "%" else (0.0, float("inf"))
