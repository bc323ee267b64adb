"""How many of a paper's printed numbers have a run behind them: an entry of a table whose cells an experiment has."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from fedflat.analysis.published.numbers import published
from fedflat.analysis.tables.layout import TableLayout
from fedflat.analysis.tables.published_keys import of_entry
from fedflat.bench.experiments.experiment import Experiment


@dataclass(frozen=True)
class Coverage:
    """Numbers of printed numbers: of all, of those with runs in the paper's own setting, of those with other runs.

    `other`: those that are met by columns of readings only; `places`: the targets of their tables.
    """

    printed: int
    own: int
    other: int
    places: tuple[str, ...] = ()

    def __add__(self, more: "Coverage") -> "Coverage":
        places = self.places + more.places
        return Coverage(self.printed + more.printed, self.own + more.own, self.other + more.other, places)

    def __str__(self) -> str:
        places = ", ".join(f"`{place}`" for place in self.places)
        other = f", {self.other} of them only in another reading ({places})" if self.other else ""
        return f"{self.own + self.other:,} of {self.printed:,} printed numbers have a run behind them{other}"


def coverage(paper: str, experiment: Experiment, layouts: Iterable[TableLayout]) -> Coverage:
    """Of a paper's tables, by the layouts of its tables."""
    numbers = published(paper)
    own, others = set[int](), set[int]()
    for layout in layouts:
        of_table = numbers[numbers["table"] == layout.published]
        for block, column, method in itertools.product(layout.blocks, layout.columns, layout.methods):
            found = of_entry(of_table, layout, experiment, block, method, column).index
            (own if column.reading is None else others).update(found)
    only = numbers.loc[sorted(others - own)]
    places = tuple(f"{paper}_table_{table}" for table in only["table"].unique())
    return Coverage(len(numbers), len(own), len(only), places)
