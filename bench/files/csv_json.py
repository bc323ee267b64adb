"""Tables as CSV files and mappings as JSON files, written atomically."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd

from bench.files.atomic import write_bytes, write_text


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a CSV file, gzipped if its name ends in .gz; floats keep all digits, so reading gives the same numbers."""
    text = table.to_csv(index=False)
    if path.suffix == ".gz":
        write_bytes(path, gzip.compress(text.encode(), mtime=0))  # no time stamp: equal tables give equal bytes
    else:
        write_text(path, text)


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write an indented JSON file."""
    write_text(path, json.dumps(data, indent=2) + "\n")
