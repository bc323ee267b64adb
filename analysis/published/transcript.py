"""What each paper states about its runs: the lines of `paper_tables/PAPER/transcript.csv`; and what departs from it.

Each line is a statement: the runs of these methods, in these parts and partitions of the paper's experiment, have this
value for this key. Parts, methods and partitions are patterns (`*` is any text). Values are alternatives, if the paper
does not say which of several it used (`0.1|0.9`), or the values of a grid, each of which occurs (`5&10&20`, where `*`
stands for further values of our own). The place is a section, table, figure or algorithm, and the line of the paper's
text; alternatives may have a place each.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.experiments.run_config import RunConfig

COUNTS = "counts"
"""A part that counts messages in few rounds on other data: only statements that name it concern it."""

_NULL_MEANS = {"training.local_momentum": 0, "training.precision": "fp32"}
"""Keys whose null is another name of a value."""

_LINE = re.compile(r" \(line \d+\)")

Values = Mapping[str, Any]
"""A run's configuration as plain values: `RunConfig.model_dump()`."""


@dataclass(frozen=True)
class Statement:
    """One line of a transcript."""

    part: str
    method: str
    partition: str
    key: str
    printed: str
    place: str

    def concerns(self, part: str, method: str, partition: str) -> bool:
        """Whether it speaks of the runs with these labels."""
        labels = ((part, self.part), (method, self.method), (partition, self.partition))
        is_meant = part != COUNTS or self.part == COUNTS
        return is_meant and all(fnmatchcase(label, pattern) for label, pattern in labels)

    @property
    def grid(self) -> tuple[str, ...]:
        """The values of a grid; a single one, which may have alternatives, if nothing is varied."""
        return tuple(self.printed.split("&"))

    def allows(self, value: Any) -> bool:
        """Whether a run may have this value."""
        return any(one == "*" or is_printed(value, one) for one in self.grid)


class Departure(NamedTuple):
    """A key for which a run has another value than the paper states; without a place, than its own experiment has."""

    key: str
    here: str
    printed: str
    place: str

    @property
    def text(self) -> str:
        """For example 'training.batch_size 100, printed 50 (Table 10)'."""
        if not self.place:
            return f"{self.key} {self.here}, not printed, but {self.printed} in the experiment of the paper"
        printed = self.printed.replace("|", " or ").replace("&", ", ")
        return f"{self.key} {self.here}, printed {printed} ({_LINE.sub('', self.place)})"


class Difference(NamedTuple):
    """A key on which the paper is silent, and for which a run has another value than the paper's own experiment.

    `of_counts`: the paper states the key, but its statements do not concern runs that only count.
    """

    key: str
    here: str
    own: str
    of_counts: bool = False

    @property
    def text(self) -> str:
        """For example 'training.clip 5 instead of 10'."""
        return f"{self.key} {self.here} instead of {self.own}"


@cache
def statements(paper: str) -> tuple[Statement, ...]:
    """All statements of a paper, in the order of its transcript."""
    with (PAPER_TABLES / paper / "transcript.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Statement(line["part"], line["method"], line["partition"], line["key"], line["value"], line["place"])
            for line in csv.DictReader(file)
        )


@cache
def _concerning(paper: str, part: str, method: str, partition: str) -> tuple[Statement, ...]:
    return tuple(one for one in statements(paper) if one.concerns(part, method, partition))


def statements_of(paper: str, cell: CellAddress) -> tuple[Statement, ...]:
    """The statements about the runs of a cell."""
    return _concerning(paper, cell.setting.dataset, cell.method, cell.setting.partition)


def departures(paper: str, cell: CellAddress, run: RunConfig) -> tuple[Departure, ...]:
    """What a run of this cell has other than its paper states; none if it is as printed."""
    values = run.model_dump()
    found = ((one, value_of(values, one.key)) for one in statements_of(paper, cell))
    return tuple(
        Departure(one.key, _text(value), one.printed, one.place) for one, value in found if not one.allows(value)
    )


def silent_differences(paper: str, cell: CellAddress, run: RunConfig, papers_own: RunConfig) -> tuple[Difference, ...]:
    """Where a run of this cell differs from the paper's own experiment in keys about which the paper says nothing.

    Seeds, engine and evaluation may always differ.
    """
    stated = {one.key for one in statements_of(paper, cell)}
    counts = cell.setting.dataset == COUNTS
    elsewhere = {one.key for one in statements(paper) if counts and fnmatchcase(cell.method, one.method)}
    ours, theirs = (
        {key: _NULL_MEANS.get(key) if value is None else value for key, value in _plain(one)}
        for one in (config.model_dump(mode="json", exclude=_FREE) for config in (run, papers_own))
    )
    return tuple(
        Difference(key, _text(ours.get(key)), _text(theirs.get(key)), key in elsewhere)
        for key in dict.fromkeys((*ours, *theirs))
        if key not in stated and ours.get(key) != theirs.get(key)
    )


_FREE = {"seed", "engine", "evaluation"}
"""What does not decide which experiment is run."""


def value_of(run: Values, key: str) -> Any:
    """A run's value for a dotted key. Augmentations are found by their names, hyper-parameters without `method`."""
    section, *names = key.split(".")
    value: Any = run["method"][section] if section == "hyperparameters" else run[section]
    for name in names:
        if isinstance(value, (tuple, list)):
            value = {step["name"]: step for step in value}
        value = None if value is None else value.get(name)
    return _NULL_MEANS.get(key) if value is None else value


def is_printed(value: Any, printed: str) -> bool:
    """Whether a value is the printed one, or one of several with | between them; texts may be patterns."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return any(_number(one) == float(value) for one in printed.split("|"))
    return any(fnmatchcase(_text(value), one) for one in printed.split("|"))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _text(value: Any) -> str:
    """A value as transcripts write it: null, true, 0.1, 512×1024 for a size; options are separated by commas. A file
    has its name only, because its folder says nothing to readers on other machines."""
    if value is None:
        return "null"
    if isinstance(value, Path):
        return value.name
    if isinstance(value, (tuple, list)):
        return "×".join(map(_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(option)}" for key, option in value.items())
    return str(value).lower() if isinstance(value, bool) or not isinstance(value, float) else f"{value:g}"


def _plain(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each single value by its dotted key, as `value_of` finds it."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            key = f"{prefix}.{name}" if prefix else str(name)
            yield from _plain(value, key.removeprefix("method.") if "hyperparameters" in key else key)
    elif isinstance(values, (tuple, list)) and all(isinstance(step, Mapping) and "name" in step for step in values):
        yield prefix, ", ".join(step["name"] for step in values)
        yield from _plain({step["name"]: step for step in values}, prefix)
    else:
        yield prefix, values
