"""Columns of numbers or names in user-defined files: CSV, gzipped or not, or npz."""

import contextlib
import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedflat.bench.input.errors import UserError

Columns = Mapping[str, NDArray[Any]]


def read_columns(content: bytes, what: str) -> Columns:
    """The columns of a table, all of one length; a `UserError` that begins with `what` if it is not a table.

    Columns of a CSV file are text, so that a name such as 007 keeps its zeros; columns of npz keep their types.
    """
    columns: Columns
    try:
        if content.startswith(b"PK"):
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                columns = {name: np.asarray(arrays[name]) for name in arrays.files}
        else:
            text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
            columns = _csv_columns(text.decode("utf-8-sig"), what)
    except (ValueError, OSError, EOFError, KeyError, csv.Error, zlib.error, zipfile.BadZipFile):
        # Undecodable text and arrays of Python objects raise a ValueError.
        raise UserError(f"{what} is neither CSV (.csv, .csv.gz) nor npz with plain arrays") from None
    odd = next((name for name, column in columns.items() if column.ndim != 1), None)
    if odd is not None:
        raise UserError(f"{what}: {odd} has {columns[odd].ndim} dimensions, not 1")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"{what}: its arrays differ in length ({', '.join(f'{n}: {k}' for n, k in lengths.items())})")
    return columns


def _csv_columns(text: str, what: str) -> Columns:
    rows = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    header = [name.strip() for name in next(rows, [])]
    if not header or "\0" in text:
        raise csv.Error
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{what} has two columns named '{twice}'")
    width = len(header)
    cells: list[str] = []
    for row in rows:
        if row and len(row) != width:
            # Continuing would silently shift or drop numbers.
            raise UserError(
                f"{what}: line {rows.line_num} has {_fields(len(row))}, but the header has {_fields(width)}"
            )
        cells += row
    return {name: np.array(cells[k::width], dtype=np.str_) for k, name in enumerate(header)}


def integers(columns: Columns, name: str, what: str) -> NDArray[np.int64]:
    """One column of whole numbers `[rows]`; a `UserError` if it is missing, empty, or holds other values."""
    column = _column(columns, name, what)
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    if column.dtype.kind == "U" and np.char.isdecimal(column).all():
        with contextlib.suppress(OverflowError):  # reported below
            return column.astype(np.int64)
    values = column.tolist()
    whole = [_whole(value) for value in values]
    if None in whole:
        raise UserError(f"{what}: {name} = {values[whole.index(None)]!r}: allowed are whole numbers")
    return np.array(whole, dtype=np.int64)


def texts(columns: Columns, name: str, what: str) -> NDArray[np.str_]:
    """One column of names `[rows]`, without spaces around them; a `UserError` if it is missing or has an empty cell.

    Whole numbers in npz are accepted and converted to text.
    """
    column = _column(columns, name, what)
    if column.dtype.kind == "S":
        column = np.char.decode(column, "utf-8", "replace")
    if column.dtype.kind != "U":
        column = integers(columns, name, what).astype(np.str_)
    column = np.char.strip(column)
    empty = np.flatnonzero(column == "")
    if len(empty):
        raise UserError(f"{what}: {name} is empty in row {empty[0] + 1} of {len(column)}")
    return column


def _column(columns: Columns, name: str, what: str) -> NDArray[Any]:
    if name not in columns:
        raise UserError(f"{what} lacks the column {name} (it has: {', '.join(columns) or 'none'})")
    if len(columns[name]) == 0:
        raise UserError(f"{what} has no rows")
    return columns[name]


def _whole(value: Any) -> int | None:
    """The whole number in a cell, also written as 3.0 (as pandas does in columns with gaps); None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value) if isinstance(value, str) and value.strip().lstrip("+-").isdecimal() else float(value)
    except (ValueError, TypeError):
        return None
    return int(number) if abs(number) < 2**63 and number == int(number) else None


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"
