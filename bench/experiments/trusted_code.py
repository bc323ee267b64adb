"""Code that runs contain, and whether it may be executed here.

A run directory may come from anybody, and its user-defined method, model and data set are Python code. Code is trusted
by its content: if an experiment that this user has read names a file with this content, or if the user has said so.
Then the user's cache has an empty file with the code's SHA-256 as its name.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

from bench.files.own_folders import cache_folder, check_private, make_private
from bench.input.errors import UserError

FOLDER = "trusted-code"

_trusted: set[str] = set()
"""What this process trusts, also if the cache cannot be written."""


class UntrustedCodeError(UserError):
    """The code of a run that may not be executed. The message names the file and says how to allow it."""

    def __init__(self, file: Path, kind: str) -> None:
        super().__init__(
            f"the {kind} '{file}' of a run is code that no experiment here has named: read it, and allow it with "
            "--trust (fedflat analyse, verify; in Python: fedflat.load_run(..., trust=True))"
        )


def trust(source: bytes) -> None:
    """Allow this code to be executed, now and by later commands of this user."""
    digest = hashlib.sha256(source).hexdigest()
    if digest in _trusted:
        return
    _trusted.add(digest)
    with suppress(OSError, RuntimeError, UserError):  # the cache cannot be written: later commands do not know it
        folder = cache_folder(FOLDER)
        make_private(folder)
        (folder / digest).touch()


def is_trusted(source: bytes) -> bool:
    """Whether this code may be executed."""
    digest = hashlib.sha256(source).hexdigest()
    try:
        folder = cache_folder(FOLDER)
        check_private(folder)
    except (RuntimeError, UserError):  # no home folder; no such folder; another user may have made it
        return digest in _trusted
    return digest in _trusted or (folder / digest).is_file()
