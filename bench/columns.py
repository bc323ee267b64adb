"""Columns of numbers in files of a user's own: CSV, gzipped or not, or npz."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.errors import UserError

Columns = Mapping[str, NDArray[Any]]


def read_columns(content: bytes, what: str) -> Columns:
    """The columns of a table, all of one length; a `UserError` that begins with `what` if it is none."""
    try:
        if content.startswith(b"PK"):
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                columns = {name: np.asarray(arrays[name]) for name in arrays.files}
        else:
            text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
            table = pd.read_csv(io.BytesIO(text), skipinitialspace=True, dtype={"filename": str})
            columns = {str(name): table[name].to_numpy() for name in table.columns}
    except (ValueError, OSError, EOFError, KeyError, zlib.error, zipfile.BadZipFile):
        # pandas' parser errors are ValueErrors, as are arrays of Python objects.
        raise UserError(f"{what} is neither CSV (.csv, .csv.gz) nor npz with plain arrays") from None
    odd = next((name for name, column in columns.items() if column.ndim != 1), None)
    if odd is not None:
        raise UserError(f"{what}: {odd} has {columns[odd].ndim} dimensions, not 1")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"{what}: its arrays differ in length ({', '.join(f'{n}: {k}' for n, k in lengths.items())})")
    return columns


def integers(columns: Columns, name: str, what: str) -> NDArray[np.int64]:
    """One column of whole numbers; a `UserError` if it is missing, empty, or holds something else."""
    if name not in columns:
        raise UserError(f"{what} lacks the column {name} (it has: {_listed(columns)})")
    column = columns[name]
    if len(column) == 0:
        raise UserError(f"{what} has no rows")
    if column.dtype.kind not in "iu":
        values = column.tolist()
        odd = next((value for value in values if not _is_whole(value)), values[0])
        raise UserError(f"{what}: {name} = {odd!r}: allowed are whole numbers")
    return column.astype(np.int64)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(columns) or "none"
