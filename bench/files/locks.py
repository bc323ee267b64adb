"""Locks that processes hold while they make something that others want too."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

log = logging.getLogger("fedflat.data")


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Hold the lock of what is made at `place`; who has to wait for another process says so."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.with_name(f".{place.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.info("waiting for another process that prepares %s", place.name)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
