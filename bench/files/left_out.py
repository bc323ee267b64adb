"""Files elsewhere in the results that cannot be read: each is named once, left out, and the command goes on."""

import logging
from pathlib import Path

_LOG = logging.getLogger("fedflat.files")
_NAMED: set[Path] = set()


def leave_out(path: Path, error: object) -> None:
    """Name a path that cannot be read, and why; only the first time in this process."""
    if path not in _NAMED:
        _NAMED.add(path)
        _LOG.warning("left out: %s", error if str(path) in str(error) else f"'{path}' cannot be read ({error})")


def is_folder(path: Path) -> bool:
    """Whether it is a folder; one that this user may not see is named and left out."""
    try:
        return path.is_dir()
    except OSError as error:
        leave_out(path, error.strerror)
        return False
