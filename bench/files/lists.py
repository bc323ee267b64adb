"""Lists: small tables of texts as CSV files with checksums, such as the runs of a cell."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.files.csv_json import read_checked_text, write_checked_csv

Row = Mapping[str, str]


def write_list(file: Path, rows: Sequence[Row]) -> None:
    """Write a list, also if the file has these rows already: it is newer then."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_checked_csv(file, pd.DataFrame(rows, dtype=str))


def read_list(file: Path, columns: Sequence[str], remedy: str) -> list[dict[str, str]]:
    """The rows of a list, with these columns, of which `seed` has whole numbers.

    A `DamagedFileError` that ends with `remedy` if it has others.
    """
    rows = [dict(row) for row in csv.DictReader(io.StringIO(read_checked_text(file, remedy)))]
    if any(tuple(row) != tuple(columns) or None in row.values() for row in rows) or not rows:
        raise DamagedFileError(file, f"it is no list of {', '.join(columns)}", remedy)
    if wrong := [row["seed"] for row in rows if not row.get("seed", "0").isdecimal()]:
        raise DamagedFileError(file, f"seed = {wrong[0]!r} (allowed: a whole number)", remedy)
    return rows
