"""Anomalies of the papers: two places that contradict each other, the text of each, and the reason."""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.input.errors import UserError, unknown

KINDS = {
    "quoted_changed": "Quoted and changed",
    "repeated": "Repeated where it cannot be",
    "text_vs_table": "Text against tables",
    "inside": "Contradictions inside a paper",
    "code": "Published against released code",
    "open": "Left open",
}
"""The kinds of anomalies, as headings."""

COLUMNS = ["kind", "place_a", "says_a", "place_b", "says_b", "what"]

_TABLES = re.compile(r"\b(fed\w+) tables? (\d+(?:(?:, | and | to )\d+)*)")
_METHODS = re.compile(r"\b(?:Mo)?Fed[A-Z]\w+(?:-[SD]\b)?|\bSCAFFOLD|\bMimeLite|\bAdaBest|\bcentralised")
_DATASETS = re.compile(r"CIFAR-100-PAM|CIFAR100-PAM|CIFAR-100|CIFAR-10|EMNIST|OfficeHome|DomainNet")
_CLIENTS = re.compile(r"\b[12]00 clients")  # the two parts of a table
_NUMBERS = re.compile(r"\d+(?:\.\d+)?")

ROUNDING = 0.005
"""Two numbers count as equal if they differ by at most this."""


@dataclass(frozen=True)
class Anomaly:
    """One anomaly. `what` says why the two places contradict each other."""

    kind: str
    place_a: str
    says_a: str
    place_b: str
    says_b: str
    what: str

    @property
    def first_table(self) -> float:
        """The number of the first table that the places name, for sorting; infinite if they name none."""
        found = _TABLES.findall(f"{self.place_a} {self.place_b}")
        return float(_NUMBERS.findall(found[0][1])[0]) if found else math.inf

    def is_reported_by(self, listed: "Anomaly") -> bool:
        """Whether a listed anomaly reports the same contradiction: it names the same tables, methods, settings and
        numbers."""
        own, theirs = (f"{anomaly.place_a} {anomaly.place_b}" for anomaly in (self, listed))
        settings = all(_share(pattern, own, theirs) for pattern in (_DATASETS, _CLIENTS))
        methods, named = set(_METHODS.findall(own)), set(_METHODS.findall(theirs))
        if not settings or (methods and not named <= methods):
            return False
        swapped = replace(self, place_a=self.place_b, says_a=self.says_b, place_b=self.place_a, says_b=self.says_a)
        return any(one._fits(listed, wordy=named == methods != set()) for one in (self, swapped))

    def _fits(self, listed: "Anomaly", *, wordy: bool) -> bool:
        """Whether place a of both anomalies agrees in tables and numbers, and place b as well.

        A listed anomaly without numbers fits if `wordy` and if the kind is the same.
        """
        tables = [(_tables(self.place_a), _tables(listed.place_a)), (_tables(self.place_b), _tables(listed.place_b))]
        same_papers = all({t.split()[0] for t in own} == {t.split()[0] for t in theirs} for own, theirs in tables)
        if not same_papers or not any(own & theirs for own, theirs in tables):
            return False
        numbers = [(_numbers(self.says_a), _numbers(listed.says_a)), (_numbers(self.says_b), _numbers(listed.says_b))]
        if not any(theirs for _, theirs in numbers):
            return wordy and self.kind == listed.kind
        return all(_among(own, theirs) or _among(theirs, own) for own, theirs in numbers)


def _tables(place: str) -> set[str]:
    """The tables that a text names: 'fedgf tables 2, 8 and 10' are three."""
    return {f"{paper} {number}" for paper, listed in _TABLES.findall(place) for number in _NUMBERS.findall(listed)}


def _numbers(text: str) -> list[float]:
    return [float(number) for number in _NUMBERS.findall(text)]


def _among(numbers: list[float], others: list[float]) -> bool:
    """Whether there are numbers, and each equals one of the others."""
    return bool(numbers) and all(any(abs(one - other) <= ROUNDING + 1e-9 for other in others) for one in numbers)


def _share(pattern: re.Pattern[str], one: str, other: str) -> bool:
    """Whether two texts share a match of the pattern, or one of them has no match."""
    found = set(pattern.findall(one)), set(pattern.findall(other))
    return not all(found) or not found[0].isdisjoint(found[1])


def listed(paper: str) -> list[Anomaly]:
    """The anomalies of `paper_tables/PAPER/anomalies.csv`, in its order; a `UserError` if the file is invalid."""
    file = PAPER_TABLES / paper / "anomalies.csv"
    return [_checked(row, file) for row in _rows(file)]


def _rows(file: Path) -> list[list[str]]:
    try:
        frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read '{file}': {' '.join(str(error).split())}") from None
    if list(frame.columns) != COLUMNS:
        raise UserError(f"'{file}' has the columns {', '.join(frame.columns)} (it must have: {', '.join(COLUMNS)})")
    return [list(map(str, row)) for row in frame.itertuples(index=False, name=None)]


def _checked(row: list[str], file: Path) -> Anomaly:
    anomaly = Anomaly(*row)
    if anomaly.kind not in KINDS:
        raise UserError(f"'{file}': {unknown('kind', anomaly.kind, KINDS)}")
    if "" in row:
        raise UserError(f"'{file}': {anomaly.place_a or 'a row'} has an empty column")
    return anomaly
