"""Which files a user's code reads, so that a later change of one is noticed."""

import os
import stat
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

State = list[int]
"""Size and time of change of a file."""

_PROGRAMS = {
    os.path.realpath(folder) + os.sep
    for folder in (*sysconfig.get_paths().values(), str(Path(__file__).resolve().parents[2]), "/proc", "/sys", "/dev")
}
"""Folders with programs and their data, such as time zones, which are no data of the user."""

_found: dict[str, State] | None = None
_is_watching = False


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    """Python calls this hook for every event; there is no way to remove it."""
    if _found is None or event != "open":
        return
    path, _, flags = arguments
    if not isinstance(path, str | bytes | Path) or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_CREAT)):
        return
    file = os.path.realpath(os.fsdecode(path))
    if file.endswith((".py", ".pyc")) or any(file.startswith(folder) for folder in _PROGRAMS):
        return
    if (state := state_of(file)) is not None:
        _found.setdefault(file, state)


def state_of(file: str) -> State | None:
    """The state of a regular file; None if there is none."""
    try:
        status = Path(file).stat()
    except (OSError, ValueError):
        return None
    return [status.st_size, status.st_mtime_ns] if stat.S_ISREG(status.st_mode) else None


@contextmanager
def opened_files() -> Iterator[dict[str, State]]:
    """The files that Python opens for reading in the block, by their absolute paths, apart from code and packages.

    A library that opens files without Python, such as pyarrow and HDF5, is not noticed.
    """
    global _found, _is_watching  # noqa: PLW0603 - the hook of the process
    if not _is_watching:
        sys.addaudithook(_watch)
        _is_watching = True
    earlier, _found = _found, {}
    try:
        yield _found
    finally:
        _found = earlier
