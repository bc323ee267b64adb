"""Snakemake's locks of a folder, which a killed Snakemake leaves: they are removed if no other one is at work there.

Snakemake locks the files that it reads and writes by files in `.snakemake/locks`. While it runs, it also shares a lock
that the system releases at its end, even if it is killed: if nobody has that lock, the locks in the folder are old.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from fedflat.bench.files.mounts import locks_on_this_machine_only

AT_WORK = "fedflat.lock"
"""The file with the shared lock, in Snakemake's folder."""


def begin_work(folder: Path) -> None:
    """Remove old locks in Snakemake's folder; from now on, until this process ends, it is at work there.

    Where locks do not hold between machines that share the folder, or where there are none, nothing is removed.
    """
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        if locks_on_this_machine_only(folder) is not None:
            return
        descriptor = os.open(folder / AT_WORK, os.O_RDWR | os.O_CREAT, 0o666)  # closed by the end of the process
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for old in (folder / "locks").glob("*.lock"):
                old.unlink()
        fcntl.flock(descriptor, fcntl.LOCK_SH)
