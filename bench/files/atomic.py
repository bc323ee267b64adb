"""Atomic writing: a file is written under a temporary name in the same folder, then renamed."""

import fcntl
import glob
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedflat.bench.files.locks import lock
from fedflat.bench.input.errors import UserError

log = logging.getLogger("fedflat.data")

TEMPORARY = ".*.tmp"
"""The pattern of the temporary names."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder: the block writes it, and it is renamed to `path` when the block ends.

    The content is on disk before the rename: after a crash, `path` is the old file or the complete new one. If the
    block fails, the temporary file is removed and `path` is unchanged. If the process is killed, the temporary file is
    removed when `path` is written again. An error of the file system is raised as a
    `UserError` of one line; other errors of the block are raised unchanged.
    """
    temporary, descriptor = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp"), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path)
        # The file is created here so that a folder without write permission fails at once, and the umask is applied.
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # so that no other process takes it for stale
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        # An error of a full disk has no file name. Errors about other files of the caller are raised unchanged.
        if error.filename is not None and Path(error.filename) not in {temporary, path, *path.parents}:
            raise
        raise UserError(f"cannot write '{path}': {error.strerror or error}") from None
    finally:
        if descriptor is not None:
            os.close(descriptor)
            with suppress(OSError):  # an error of the block is more important
                temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically. A file that cannot be written, but has this content already, is no error."""
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except UserError:  # such as a read-only file system
        if not _has(path, data):
            raise


def write_text(path: Path, text: str) -> None:
    """Write a text file (UTF-8, line ends as given) atomically."""
    write_bytes(path, text.encode())


def _has(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _remove_stale(path: Path) -> None:
    """Remove temporary files of `path` that no process uses, with a line in the log for each."""
    for stale in path.parent.glob(f".{glob.escape(path.name)}.????????.tmp"):
        with suppress(OSError):  # removed by another process, or of another user
            descriptor = lock(stale)
            if descriptor is None:  # in use
                continue
            try:
                stale.unlink()
                log.info("removed '%s', left by a killed process", stale)
            finally:
                os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
