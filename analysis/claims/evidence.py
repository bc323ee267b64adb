"""The numbers that decide claims: those that a paper prints, or those of the runs of one experiment, never both."""

import math
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

from analysis.claims.decide import Finding, decide
from analysis.claims.schema import Claim
from analysis.layouts.layout import layout_names
from analysis.published.numbers import PublishedNumber, find, published
from analysis.tables.layout import Column, load_table
from analysis.tables.reproduction import of_entry
from bench.experiments.address import CellAddress
from bench.experiments.experiment import load_experiment

Kind = Literal["print", "true scale", "smoke scale", "other settings", "other data"]
"""What decides claims: the paper's printed numbers; runs with the paper's own settings; runs at smoke scale; runs of
the paper's experiment with values set otherwise; runs of another experiment, which extends the paper's."""

_TABLES = re.compile(r"Tables? (\d+(?:(?:, | and | to )\d+)*)")

Key = tuple[str, str, float | str | None, bool]


def _key(column: Column) -> Key:
    """What a column or a claim shows: metric, kind of tidy file, target, and whether it is smoothed."""
    return (column.metric, column.file, column.target, column.smoothed)


@dataclass(frozen=True)
class Printed:
    """The numbers that a paper prints, for the cells of its own experiment."""

    paper: str
    kind: Kind = "print"

    def finding(self, claim: Claim) -> Finding | None:
        """Whether the printed numbers confirm a claim; None if they contain no cell of it."""
        statement = claim.statement(list(load_experiment(self.paper).settings))
        if statement is None:
            return None
        values = {}
        for cell in statement.cells:
            if numbers := self._numbers.get((_key(claim.column), cell)):
                number = next((numbers[table] for table in numbers if table in _tables(claim.place)), None)
                values[cell] = {0: _value(number or next(iter(numbers.values())), claim.column)}
        return decide(statement, values, exact=True)

    @cached_property
    def _numbers(self) -> dict[tuple[Key, CellAddress], dict[str, PublishedNumber]]:
        """The printed numbers of each quantity and cell, by the table that prints them."""
        experiment, frame = load_experiment(self.paper), published(self.paper)
        found: dict[tuple[Key, CellAddress], dict[str, PublishedNumber]] = {}
        for name in layout_names(self.paper, "tables"):
            layout = load_table(self.paper, name)
            plain = [c for c in layout.supported if not (c.mean_of or c.gain_over)]
            plain.sort(
                key=lambda column: column.relative_to is not None
            )  # multiples stand for numbers that are not printed
            for block, column, method in product(layout.blocks, plain, layout.supported_methods):
                if layout.published is None or not layout.has(block, method, column, experiment):
                    continue
                number = find(of_entry(frame, layout, experiment, block, method, column), table=layout.published)
                number = number.deviation if number and "value" in column.published else number
                if number is not None and (number.value is not None or number.failed):
                    (setting,) = layout.settings_of(block, column, experiment)
                    key = (_key(column), CellAddress(setting, method))
                    found.setdefault(key, {}).setdefault(layout.published, number)
        return found


def _tables(place: str) -> list[str]:
    """The numbers of the tables that a place names: 'Table 1', 'Tables 2 and 10'."""
    return [number for listed in _TABLES.findall(place) for number in re.findall(r"\d+", listed)]


def _value(number: PublishedNumber, column: Column) -> float:
    """A printed number; a failed run is worse than all others."""
    return _worst(column) if number.value is None else number.value


def _worst(column: Column) -> float:
    return {"higher": -math.inf, "lower": math.inf, "none": math.nan}[column.direction]
