"""Locks between processes. A lock belongs to an open file or folder: it is released even if its process is killed."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("fedflat.data")


def lock(path: Path, *, wait: bool = False) -> int | None:
    """Lock an existing folder, or a file that is created if it is missing; return the descriptor that holds the lock.

    Close the descriptor to release the lock. If another process holds the lock: wait for it with `wait`, else None.
    """
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:  # such as Ctrl-C while waiting
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Hold the lock for writing the file or folder `place`; waiting for another process is logged."""
    place.parent.mkdir(parents=True, exist_ok=True)
    file = place.with_name(f".{place.name}.lock")
    descriptor = lock(file)
    if descriptor is None:
        log.info("waiting for another process that prepares %s", place.name)
        descriptor = lock(file, wait=True)
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)
