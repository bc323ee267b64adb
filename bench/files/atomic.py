"""Atomic writing: a file is written under a temporary name in the same folder, then renamed."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.input.errors import UserError

TEMPORARY = ".*.tmp"
"""The pattern of the temporary names."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder, to be written in the block and renamed to `path` at its end.

    The content is on disk before the rename: after a crash there is the old file or the new one, never half of one.
    If the block fails, the temporary file is removed and `path` is unchanged. An error of the file system is a
    `UserError` of one line; other errors of the block pass through.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Created before the block: a folder without write permission fails at once, and the umask sets permissions.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        # A full disk gives no file name. An error about another file of the caller is not about `path`.
        if error.filename is not None and Path(error.filename) not in {temporary, path, *path.parents}:
            raise
        raise UserError(f"cannot write '{path}': {error.strerror or error}") from None
    finally:
        if temporary.parent.is_dir():
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write a text file (UTF-8, line ends as given) atomically."""
    write_bytes(path, text.encode())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
