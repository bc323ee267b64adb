"""Other users of this machine, and code that shows whether it was executed."""

from pathlib import Path

import pytest

from fedflat.bench.code import trusted_code

LEAVES_A_TRACE = "open(__file__ + '.executed', 'w').close()\n"
"""The begin of a file of code, next to which there is another file after its execution."""


def executed(*folders: Path) -> list[str]:
    """The code in these folders that was executed since the last call."""
    found = {trace: folder for folder in folders for trace in folder.rglob("*.executed")}
    for trace in found:
        trace.unlink()
    return sorted(str(trace.relative_to(folder)).removesuffix(".executed") for trace, folder in found.items())


def become_another_user(cache: Path, patch: pytest.MonkeyPatch) -> None:
    """From now on, neither this process nor the user's cache knows any code."""
    patch.setenv("XDG_CACHE_HOME", str(cache))
    forget_trust(patch)


def forget_trust(patch: pytest.MonkeyPatch) -> None:
    """As in a new process, which knows only what the user's cache says."""
    patch.setattr(trusted_code, "_trusted", set())
