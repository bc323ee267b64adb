"""Selecting published numbers, and printing them as a table."""

import textwrap
from collections.abc import Mapping, Sequence

import pandas as pd

from fedflat.analysis.published.numbers import NOTES, as_printed, kinds
from fedflat.bench.files.text_table import aligned
from fedflat.bench.input.errors import UserError, counted, unknown

LAST = ("variant", "note")
"""The last columns, which are truncated to the remaining width."""

LEAST_REST = 20
"""The minimum width of the last columns."""


def query(wanted: Mapping[str, Sequence[str]], notes: Sequence[str] = ()) -> pd.DataFrame:
    """The rows, as printed, that have one of the requested values in each column, and a note of one of these kinds.

    A `UserError` names a value that no row has and the nearest known one, or says that no row has all values.
    """
    frame = as_printed()
    for column, values in wanted.items():
        papers = wanted.get("paper") if column == "table" else None  # a table's number has a meaning within its paper
        known = set(frame[column][frame["paper"].isin(papers or frame["paper"])]) - {""}
        for value in values:
            if value not in known:
                raise unknown(column, value, known)
    for note in notes:
        if note not in NOTES:
            raise unknown("kind of note", note, NOTES)
    wanted = {column: values for column, values in wanted.items() if values}
    for column, values in wanted.items():
        frame = frame[frame[column].isin(values)]
    if notes:
        frame = frame[frame["note"].map(lambda note: not set(notes).isdisjoint(kinds(note)))]
    if frame.empty:
        options = [f"--{column} {value}" for column, values in wanted.items() for value in values]
        raise UserError(f"no published number matches {' '.join([*options, *(f'--note {note}' for note in notes)])}")
    return frame.reset_index(drop=True)


def as_text(frame: pd.DataFrame, width: int) -> str:
    """The rows for a terminal of `width` characters.

    Values that all rows share are written above the table, empty columns are omitted, long notes are truncated.
    """
    shown = pd.DataFrame(
        {
            **{column: frame[column] for column in ("paper", "table", "dataset", "model")},
            "partition": _joined(frame, "partition", " ", "partition_param"),
            "clients": _joined(frame, "active_clients", " of ", "n_clients"),
            **{column: frame[column] for column in ("rounds", "method", "metric")},
            "value": _joined(frame, "value", " ± ", "std"),
            **{column: frame[column] for column in ("variant", "note")},
        }
    )
    shown = shown.loc[:, (shown != "").any()]
    common = [column for column in shown if len(shown) > 1 and shown[column].nunique() == 1]
    shared = "; ".join(f"{column}: {shown[column].iloc[0]}" for column in common)
    count = counted(len(frame), "number")
    head = [*textwrap.wrap(shared, width), ""] if shared else []
    return "\n".join([*head, *_lines(shown.drop(columns=common), width), "", count])


def _joined(frame: pd.DataFrame, first: str, sign: str, second: str) -> "pd.Series[str]":
    """Two columns with a sign between them; the sign is left out where the second column is empty."""
    with_sign = (sign + frame[second]).where(frame[second] != "", "")
    return (frame[first] + with_sign).str.strip()


def _lines(shown: pd.DataFrame, width: int) -> list[str]:
    """Header and rows in columns; variant and note share the remaining width."""
    rows = [list(shown.columns), *shown.to_numpy().tolist()]
    first = [column for column in shown if column not in LAST]
    widths = [max(map(len, cells)) for cells in zip(*(row[: len(first)] for row in rows), strict=True)]
    rest = max(width - sum(widths) - 2 * len(widths), LEAST_REST)
    return aligned([[*row[: len(first)], _cut("; ".join(filter(None, row[len(first) :])), rest)] for row in rows])


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"
