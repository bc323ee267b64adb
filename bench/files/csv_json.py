"""Tables as CSV files and mappings as JSON files, written atomically.

Files that FedFlat reads again have a checksum: a table in its last column, whose value is the same in all rows, such as
`90-1a2b3c4d` (the number of rows, and the CRC-32 of the file without this column); a mapping in its last key.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from fedflat.bench.files.atomic import write_bytes, write_text
from fedflat.bench.files.checksums import CHECKSUM, DIFFERS, checksum, damage_in_one_line, note_unchecked


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a CSV file, gzipped if its name ends in .gz; floats keep all digits, so reading gives the same numbers."""
    text = table.to_csv(index=False)
    if path.suffix == ".gz":
        write_bytes(path, gzip.compress(text.encode(), mtime=0))  # no time stamp: equal tables give equal bytes
    else:
        write_text(path, text)


def write_checked_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a CSV file with a checksum. A table without rows has no place for one."""
    if not table.empty:
        table = table.assign(**{CHECKSUM: _checksum_of_csv(len(table), table.to_csv(index=False))})
    write_csv(path, table)


def read_checked_csv(
    path: Path,
    columns: Sequence[str],
    remedy: str,
    *,
    texts: Sequence[str] = (),
    whole: Sequence[str] = (),
    keys: Sequence[str] = (),
    **options: Any,
) -> pd.DataFrame:
    """The table in a CSV file, gzipped or not, without its checksum.

    A `DamagedFileError` that ends with `remedy` if its checksum does not match, if it lacks one of the `columns`, if a
    column that is not in `texts` contains anything but numbers, if a column in `whole` contains anything but whole
    numbers, or if two rows are equal in all `keys`. The `options` are those of `pandas.read_csv`.
    """
    with damage_in_one_line(path, remedy):
        text, is_checked = _read(path)
        # Without low_memory=False, pandas would warn of a column with mixed types.
        table: pd.DataFrame = pd.read_csv(
            io.StringIO(text), low_memory=False, dtype=dict.fromkeys(texts, str), **options
        )
        _check(table, columns, texts, whole, keys)
    if not (is_checked or table.empty):
        note_unchecked(path)
    return table


def read_checked_text(path: Path, remedy: str) -> str:
    """The text of a CSV file, gzipped or not, without its checksum; a `DamagedFileError` if that does not match."""
    with damage_in_one_line(path, remedy):
        text, is_checked = _read(path)
    if not is_checked:
        note_unchecked(path)
    return text


def write_checked_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write an indented JSON file with a checksum."""
    write_text(path, json.dumps({**data, CHECKSUM: _checksum_of_json(data)}, indent=2) + "\n")


def read_checked_json(path: Path, remedy: str) -> dict[str, Any]:
    """The mapping in a JSON file, without its checksum.

    A `DamagedFileError` that ends with `remedy` if the file has no mapping, or if its checksum does not match.
    """
    with damage_in_one_line(path, remedy):
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it holds no mapping")
        stated = data.pop(CHECKSUM, None)
        if stated is None:
            note_unchecked(path)
        elif stated != _checksum_of_json(data):
            raise ValueError(DIFFERS)
    return data


def _read(path: Path) -> tuple[str, bool]:
    """The text of a table without its checksum, and whether it had one; gzip checks its content itself."""
    content = path.read_bytes()
    is_gzip = content.startswith(b"\x1f\x8b")
    text, has_checksum = _without_checksum((_unpacked(content) if is_gzip else content).decode())
    return text, has_checksum or is_gzip


def _unpacked(content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, zlib.error) as error:
        raise ValueError(error) from None


def _checksum_of_json(data: Mapping[str, Any]) -> str:
    return checksum(json.dumps(data).encode())


def _checksum_of_csv(rows: int, text: str) -> str:
    return f"{rows}-{checksum(text.encode())}"


def _without_checksum(text: str) -> tuple[str, bool]:
    """The text of a table without the column of checksums, and whether it had one; a ValueError if it is damaged."""
    if "\0" in text:
        raise ValueError("it contains NUL characters")
    if not text.endswith("\n"):
        raise ValueError("its last line is incomplete" if text else "it is empty")
    head, _, rows = text.partition("\n")
    if head.endswith("\r"):
        raise ValueError("its lines end with CR LF instead of LF, as after a checkout by git with core.autocrlf")
    of_last_row = rows[:-1].rpartition("\n")[2].rpartition(",")[2]
    has_column = head.endswith(f",{CHECKSUM}")
    stated = re.fullmatch(r"(\d+)-[0-9a-f]{8}", of_last_row)
    if not has_column and stated is None:
        return text, False
    found = rows.count(f",{of_last_row}\n")
    text = head.removesuffix(f",{CHECKSUM}") + "\n" + rows.replace(f",{of_last_row}\n", "\n")
    if stated is not None and found < int(stated[1]):
        raise ValueError(f"it has {found} of {stated[1]} rows")
    if not has_column or of_last_row != _checksum_of_csv(found, text):
        raise ValueError(DIFFERS)
    return text, True


def _check(
    table: pd.DataFrame, columns: Sequence[str], texts: Sequence[str], whole: Sequence[str], keys: Sequence[str]
) -> None:
    """A ValueError if a table is not as `read_checked_csv` describes it."""
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(f"it lacks the column {missing[0]}; it has: {', '.join(map(str, table.columns))}")
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError("its lines have more fields than its header")
    if table.empty:
        return
    for name, column in table.items():
        if name not in texts and not is_numeric_dtype(column):
            wrong = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
            if not wrong.empty:  # True, False and gaps count as numbers
                raise ValueError(f"{name} = {wrong.iloc[0]!r} is not a number")
        if name in whole and column.dtype.kind not in "iu":
            raise ValueError(f"{name} contains values that are not whole numbers")
    if keys and table.duplicated(list(keys)).any():
        raise ValueError(f"two rows have the same {' and '.join(keys)}")
