"""The version of the code that trains: a fingerprint of the source files, and the git commit."""

import functools
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedflat.bench import __version__
from fedflat.bench.input.content import named_contents, short_hash

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package `bench`, which decides the numbers of a run. git sees no changes through a link to it."""


@functools.cache
def code_fingerprint() -> str:
    """SHA-256 of the source files of `bench`, first 16 hex digits."""
    return short_hash(*named_contents(PACKAGE.rglob("*.py"), PACKAGE))


@functools.cache
def git_commit() -> Mapping[str, Any]:
    """The `commit` of the repository, and whether `bench` differs from it (`dirty`); both None without a repository.

    Found once per process: later changes are not those of the code that was imported.
    """
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top) != PACKAGE.parent:  # also if a foreign repository contains the installed package
        return {"commit": None, "dirty": None}
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain", "--", str(PACKAGE)))}


def code_in_words() -> str:
    """The version of FedFlat, and its commit where it is known."""
    about = git_commit()
    changed = ", with changes" if about["dirty"] else ""
    commit = "" if about["commit"] is None else f", commit {about['commit']}{changed}"
    return f"FedFlat {__version__}{commit}"


def _git(*arguments: str) -> str | None:
    try:
        return subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
