"""Which GPU a process takes: one that no other process holds, by a lock on a file for each."""

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.input.errors import UserError

POLL_SECONDS = 0.5

_held: dict[Path, int] = {}
"""The lock files of this process's GPUs and their descriptors, open as long as it lives: so a lock ends with it."""


def claims_folder() -> Path:
    """One for each user of this machine; not below TMPDIR, which may differ from job to job."""
    return Path(f"/tmp/fedflat-gpus-{os.getuid()}")


def claim(gpus: Sequence[str], folder: Path, progress: Callable[[str], None]) -> int:
    """The index of a GPU that is this process's own until it ends, however it ends; the same one if it is asked again.

    `gpus` are names, such as UUIDs, by which all processes know them. Waits while others hold all, and says so.
    """
    files = [folder / f"{gpu}.lock" for gpu in gpus]
    for index, file in enumerate(files):
        if file in _held:
            return index
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        waiting = False
        while (free := next((index for index, file in enumerate(files) if _locked(file)), None)) is None:
            if not waiting:
                names = ", ".join(f"cuda:{index}" for index in range(len(gpus)))
                progress(f"waiting for a GPU: other processes hold {names} (--device cuda:0 would not wait)")
                waiting = True
            time.sleep(POLL_SECONDS)
    except OSError as error:
        raise UserError(f"cannot claim a GPU in '{folder}': {error.strerror}") from None
    return free


def _locked(file: Path) -> bool:
    """Whether the lock is now this process's own."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    _held[file] = descriptor
    return True
