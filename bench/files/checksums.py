"""Checksums of files of results, and the error for a damaged file.

JSON files and tensor files contain their own (CRC-32), CSV files have theirs next to them. Files of earlier versions
may have none: they are read without this check, and the log says so.
"""

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten

from fedflat.bench.input.errors import UserError

log = logging.getLogger("fedflat.files")

CHECKSUM = "checksum"
"""The name of the JSON key and the key in a tensor file's metadata that contain the checksum, and of the column in CSV
files of earlier versions."""

DIFFERS = "its content does not match its checksum"
"""The reason in the message about a file that was altered or cut."""


class DamagedFileError(UserError):
    """A file of results is missing, incomplete or altered. The message names the file and says what to do.

    `damage`: the message without what to do.
    """

    def __init__(self, path: Path, why: object, remedy: str) -> None:
        self.damage = f"'{path}' is damaged ({shorten(str(why), 300)})"
        super().__init__(f"{self.damage}: {remedy}")


@contextmanager
def damage_in_one_line(path: Path, remedy: str) -> Iterator[None]:
    """Raise every error that a damaged file can cause in this block as a `DamagedFileError` that ends with `remedy`.

    A file that the system refuses to read may be intact: this is another `UserError`.
    """
    try:
        yield
    except FileNotFoundError:
        raise DamagedFileError(path, "it does not exist", remedy) from None
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror or error}") from None
    except KeyError as error:
        raise DamagedFileError(path, f"it lacks {error}", remedy) from None
    except (ValueError, TypeError, AttributeError, OverflowError, EOFError, RecursionError) as error:
        raise DamagedFileError(path, error, remedy) from None


def checksum(content: bytes | memoryview) -> str:
    """The CRC-32 of the bytes, 8 hex digits."""
    return f"{zlib.crc32(content):08x}"


UNCHECKED: set[Path] = set()
"""The files without a checksum that this process has read."""


def note_unchecked(path: Path) -> None:
    """Log that a file has no checksum; only the first one, because an earlier version wrote all files without."""
    if not UNCHECKED:
        log.info("'%s' is of an earlier version, without checksums: such files are not checked for damage", path)
    UNCHECKED.add(path)
