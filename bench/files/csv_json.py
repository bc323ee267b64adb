"""Tables as CSV files and mappings as JSON files, written atomically.

Files that FedFlat reads again have a checksum: a table NAME.csv its SHA-256 in NAME.csv.sha256, a line as `sha256sum`
writes and checks it; a mapping its CRC-32 in its last key. The provenance of a run has the hashes of its tables. Tables
of earlier versions have their checksum in the last column, such as `90-1a2b3c4d`: the number of rows, and the CRC-32 of
the file without this column.
"""

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from fedflat.bench.files.atomic import write_bytes, write_text
from fedflat.bench.files.checksums import CHECKSUM, DIFFERS, checksum, damage_in_one_line, note_unchecked
from fedflat.bench.input.errors import UserError


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a CSV file, gzipped if its name ends in .gz; floats keep all digits, so reading gives the same numbers."""
    text = table.to_csv(index=False)
    if path.suffix == ".gz":
        write_bytes(path, gzip.compress(text.encode(), mtime=0))  # no time stamp: equal tables give equal bytes
    else:
        write_text(path, text)


def write_checked_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a CSV file, and its checksum next to it. At first, that of the old file stays there, too: so each has one
    if the process is killed."""
    content, sums, old = table.to_csv(index=False).encode(), sum_file(path), b""
    with suppress(OSError):  # there is none
        old = sums.read_bytes()
    new = _sum_of(path, content)
    both = new if old in {b"", new} else new + old
    write_bytes(sums, both)
    try:
        write_bytes(path, content)
    except UserError:
        write_bytes(sums, old) if old else sums.unlink(missing_ok=True)
        raise
    if both != new:
        write_bytes(sums, new)


def sum_file(path: Path) -> Path:
    """The file with the checksum of a table."""
    return path.with_name(f"{path.name}.sha256")


def read_checked_csv(
    path: Path,
    columns: Sequence[str],
    remedy: str,
    *,
    texts: Sequence[str] = (),
    whole: Sequence[str] = (),
    keys: Sequence[str] = (),
    is_recorded: bool = False,
    **options: Any,
) -> pd.DataFrame:
    """The table in a CSV file, gzipped or not, without its checksum.

    A `DamagedFileError` that ends with `remedy` if its checksum does not match, if it lacks one of the `columns`, if a
    column that is not in `texts` contains anything but numbers, if a column in `whole` contains anything but whole
    numbers, or if two rows are equal in all `keys`. `is_recorded`: its hash is stored elsewhere, and the caller
    compares it. The `options` are those of `pandas.read_csv`.
    """
    with damage_in_one_line(path, remedy):
        text, is_checked = _read(path)
        # Without low_memory=False, pandas would warn of a column with mixed types.
        table: pd.DataFrame = pd.read_csv(
            io.StringIO(text), low_memory=False, dtype=dict.fromkeys(texts, str), **options
        )
        _check(table, columns, texts, whole, keys)
    if not (is_checked or is_recorded or table.empty):
        note_unchecked(path)
    return table


def read_checked_text(path: Path, remedy: str, *, is_recorded: bool = False) -> str:
    """The text of a CSV file, gzipped or not, without its checksum; a `DamagedFileError` if that does not match.

    `is_recorded` as for `read_checked_csv`.
    """
    with damage_in_one_line(path, remedy):
        text, is_checked = _read(path)
    if not (is_checked or is_recorded):
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
        data = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_repeats)
        if not isinstance(data, dict):
            raise ValueError("it holds no mapping")
        stated = data.pop(CHECKSUM, None)
        if stated is None:
            note_unchecked(path)
        elif stated != _checksum_of_json(data):
            raise ValueError(DIFFERS)
    return data


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping; a ValueError if a key is there twice, which the checksum of the content would not show."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("it has a key twice")
    return found


def _read(path: Path) -> tuple[str, bool]:
    """The text of a table, and whether it has a checksum; gzip checks its content itself."""
    content, is_right = path.read_bytes(), None
    if is_gzip := content.startswith(b"\x1f\x8b"):
        content = _unpacked(content)
    else:
        while (is_right := _has_sum(path, content)) is False and content != (now := path.read_bytes()):
            content = now  # another process wrote the file meanwhile
    text, has_column = _without_column(content.decode(), is_right=bool(is_right))
    if is_right is False and not has_column:
        raise ValueError(DIFFERS)
    return text, bool(is_gzip or is_right or has_column)


def _sum_of(path: Path, content: bytes) -> bytes:
    return f"{hashlib.sha256(content).hexdigest()}  {path.name}\n".encode()


def _has_sum(path: Path, content: bytes) -> bool | None:
    """Whether the file of checksums has that of this content; None if there is no such file."""
    try:
        return _sum_of(path, content).split()[0] in sum_file(path).read_bytes().split()
    except FileNotFoundError:
        return None


def _unpacked(content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, zlib.error) as error:
        raise ValueError(error) from None


def _checksum_of_json(data: Mapping[str, Any]) -> str:
    return checksum(json.dumps(data).encode())


def _without_column(text: str, *, is_right: bool) -> tuple[str, bool]:
    """The text without the column of checksums of an earlier version, and whether it had one.

    A ValueError if it is damaged. `is_right`: it is the text that was written.
    """
    if "\0" in text:
        raise ValueError("it contains NUL characters")
    if not text.endswith("\n"):
        raise ValueError("its last line is incomplete" if text else "it is empty")
    head, _, rows = text.partition("\n")
    if head.endswith("\r"):
        raise ValueError("its lines end with CR LF instead of LF, as after a checkout by git with core.autocrlf")
    of_last_row = rows[:-1].rpartition("\n")[2].rpartition(",")[2]
    has_column = head.endswith(f",{CHECKSUM}")
    stated = None if is_right and not has_column else re.fullmatch(r"(\d+)-[0-9a-f]{8}", of_last_row)
    if not has_column and stated is None:
        return text, False
    found = rows.count(f",{of_last_row}\n")
    text = head.removesuffix(f",{CHECKSUM}") + "\n" + rows.replace(f",{of_last_row}\n", "\n")
    if stated is not None and found < int(stated[1]):
        raise ValueError(f"it has {found} of {stated[1]} rows")
    if not has_column or of_last_row != f"{found}-{checksum(text.encode())}":
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
