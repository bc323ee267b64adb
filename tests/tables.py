"""Tables as earlier versions of FedFlat wrote them, and the names of files with tables."""

from pathlib import Path

import pandas as pd

from fedflat.bench.files.checksums import checksum
from fedflat.bench.files.csv_json import sum_file, write_csv


def without_checksum(file: Path, table: pd.DataFrame | None = None) -> None:
    """The table in a file, by default the one that it has, without a checksum."""
    write_csv(file, pd.read_csv(file, dtype=str, keep_default_na=False) if table is None else table)
    sum_file(file).unlink(missing_ok=True)


def with_column(file: Path, table: pd.DataFrame) -> None:
    """The table with its checksum in a column."""
    stated = f"{len(table)}-{checksum(table.to_csv(index=False).encode())}"
    write_csv(file, table.assign(checksum=stated))


def with_sums(*names: str) -> list[str]:
    """Names of files in a folder, and those of the checksums of the tables among them."""
    return sorted([*names, *(f"{name}.sha256" for name in names if name.endswith(".csv"))])
