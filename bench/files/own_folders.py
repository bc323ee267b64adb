"""Folders outside of the results: the user's cache, and folders that no other user of the machine can enter."""

import os
import stat
from pathlib import Path

from fedflat.bench.input.errors import UserError

ALLOWED = "(allowed: a folder of yours with the mode 0700)"


def cache_folder(name: str) -> Path:
    """A folder of FedFlat in the user's cache, which may not exist. A `RuntimeError` if there is no home folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache) / "fedflat" / name


def make_private(folder: Path) -> None:
    """Make the folder if it is missing; a `UserError` if that fails, or if other users may have put files there.

    An existing folder must be no link, belong to this user, and be closed to others.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except FileExistsError:
        check_private(folder)
    except OSError as error:
        raise UserError(f"cannot make '{folder}': {error.strerror}") from None


def check_private(folder: Path) -> None:
    """A `UserError` if the path is no folder, or is a link, or if other users own the folder or can enter it."""
    try:
        status = folder.lstat()  # of a link itself
    except OSError as error:
        raise UserError(f"cannot use '{folder}': {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise UserError(f"'{folder}' is a link or a file {ALLOWED}")
    if status.st_uid != os.geteuid():
        raise UserError(f"'{folder}' belongs to another user {ALLOWED}")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise UserError(f"'{folder}' has the mode {stat.S_IMODE(status.st_mode):04o} {ALLOWED}")
