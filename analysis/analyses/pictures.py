"""Pictures of an analysis: PNG files next to its table, which has their paths, such as pictures/0123456789abcdef.png.

The name of a file is the hash of its content, so a damaged file is found, and equal pictures are stored once.
"""

import base64
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedflat.bench.files.atomic import write_bytes
from fedflat.bench.files.checksums import DIFFERS, damage_in_one_line
from fedflat.bench.input.content import short_hash

FOLDER = "pictures"


def store_pictures(folder: Path, table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Write the contents of PNG files in these columns below the folder of the table; the table with their paths."""

    def stored(content: bytes) -> str:
        place = f"{FOLDER}/{short_hash(content)}.png"
        write_bytes(folder / place, content)
        return place

    return table.assign(**{name: table[name].map(stored) for name in columns})


def read_pictures(folder: Path, table: pd.DataFrame, columns: Sequence[str], remedy: str) -> pd.DataFrame:
    """The table with the contents of its pictures; a `DamagedFileError` that ends with `remedy` if one is damaged."""

    def content(place: str) -> bytes:
        if not place.endswith(".png"):  # a table of an earlier version has the contents, in base64
            return base64.b64decode(place)
        with damage_in_one_line(folder / place, remedy):
            found = (folder / place).read_bytes()
            if short_hash(found) != Path(place).stem:
                raise ValueError(DIFFERS)
            return found

    return table.assign(**{name: table[name].map(content) for name in columns})
