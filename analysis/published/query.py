"""Questions to the published numbers, and the answer as an aligned table."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from analysis.published.numbers import NOTES, as_printed, kinds
from bench.input.errors import UserError, unknown

LAST = ("variant", "note")
"""The last columns, cut to what is left of the width."""

LEAST_LEFT = 20
"""But not further than this."""


def query(asked: Mapping[str, Sequence[str]], notes: Sequence[str] = ()) -> pd.DataFrame:
    """The rows, as printed, that have one of the values of each column, and one of the kinds of notes.

    A `UserError` for a value that no row has, with the nearest, and if no row has all of them.
    """
    frame = as_printed()
    for column, values in asked.items():
        known = set(frame[column]) - {""}
        for value in values:
            if value not in known:
                raise unknown(column, value, known)
    for note in notes:
        if note not in NOTES:
            raise unknown("kind of note", note, NOTES)
    wanted = {column: values for column, values in asked.items() if values}
    for column, values in wanted.items():
        frame = frame[frame[column].isin(values)]
    if notes:
        frame = frame[frame["note"].map(lambda note: not set(notes).isdisjoint(kinds(note)))]
    if frame.empty:
        options = [f"--{column} {value}" for column, values in wanted.items() for value in values]
        raise UserError(f"no published number has all of {' '.join([*options, *(f'--note {note}' for note in notes)])}")
    return frame.reset_index(drop=True)


def aligned(frame: pd.DataFrame, width: int) -> str:
    """For a terminal of so many columns: what all rows share stands above the table, empty columns are left out.

    Of variant and note, what fits is shown.
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
    told = "; ".join(f"{column}: {shown[column].iloc[0]}" for column in common)
    count = f"{len(frame)} number{'s' if len(frame) > 1 else ''}"
    head = [*textwrap.wrap(told, width), ""] if told else []
    return "\n".join([*head, *_columns(shown.drop(columns=common), width), "", count])


def _joined(frame: pd.DataFrame, first: str, sign: str, second: str) -> "pd.Series[str]":
    """Two columns with a sign between them; the sign belongs to the second one, and goes where that is empty."""
    with_sign = (sign + frame[second]).where(frame[second] != "", "")
    return (frame[first] + with_sign).str.strip()


def _columns(shown: pd.DataFrame, width: int) -> Iterator[str]:
    """Header and rows, left-aligned two blanks apart; variant and note share what is left of the width."""
    rows = [list(shown.columns), *shown.to_numpy().tolist()]
    cut = sum(column not in LAST for column in shown)
    widths = [max(map(len, column)) for column in zip(*(row[:cut] for row in rows), strict=True)]
    left = max(width - sum(widths) - 2 * len(widths), LEAST_LEFT)
    for row in rows:
        end = "; ".join(filter(None, row[cut:]))
        end = end if len(end) <= left else f"{end[: left - 1].rstrip()}…"
        yield "  ".join([*map(str.ljust, row, widths), end]).rstrip()
