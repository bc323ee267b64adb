"""The gate for code of users: only trusted content is executed, wherever it is, and however it is named.

A run directory, an archive or a stored experiment may come from anybody, and its methods, models and data sets are
Python code. Code is trusted by its content: if an experiment or a command of this user has named a file with this
content, or if the user has said so. Then the user's cache has an empty file with the code's SHA-256 as its name.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

from fedflat.bench.files.own_folders import cache_folder, check_private, make_private
from fedflat.bench.input.errors import UserError

FOLDER = "trusted-code"

_trusted: set[str] = set()
"""What this process trusts, also if the cache cannot be written."""

_OF_RUNS = "--trust (fedflat analyse, verify; in Python: fedflat.load_run(..., trust=True))"


class UntrustedCodeError(UserError):
    """Code that may not be executed. The message names the file, and says how to allow it."""

    def __init__(self, file: Path, kind: str, allow: str = _OF_RUNS) -> None:
        super().__init__(
            f"the {kind} '{file}' is code that no experiment here has named: read it, and allow it with {allow}"
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


def require_trusted(file: Path, source: bytes, kind: str) -> None:
    """An `UntrustedCodeError` if the source of a file may not be executed."""
    if not is_trusted(source):
        raise UntrustedCodeError(file, kind)
