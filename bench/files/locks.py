"""Locks between processes. A lock belongs to an open file: it is released even if its process is killed.

Locks hold between machines that share a folder by NFS, too: Linux asks the server for `flock` of a file that is open
for writing. It does not do so for folders, so a folder is locked by a file next to it. `fedflat.bench.files.mounts`
knows file systems whose locks hold on one machine only.
"""

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

log = logging.getLogger("fedflat.data")

WAITING_SECONDS = 0.5


def lock(path: Path, *, wait: bool = False) -> int | None:
    """Lock a file, which is created if it is missing; return the descriptor that holds the lock.

    Close the descriptor to release the lock. If another process holds the lock: wait for it with `wait`, else None. An
    `OSError` without a file name: the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException as error:  # such as Ctrl-C while waiting
        os.close(descriptor)
        if isinstance(error, OSError) and error.errno == errno.ESTALE:  # NFS: removed by another machine after opening
            return lock(path, wait=wait)
        raise
    return descriptor


def lock_file(folder: Path) -> Path:
    """The file whose lock is that of a folder: `.NAME.lock` next to it."""
    return folder.with_name(f".{folder.name}.lock")


@contextmanager
def folder_lock(folder: Path) -> Iterator[bool]:
    """Lock a folder, which need not exist, by its `lock_file`, which is removed at the end.

    Yields False, without the lock, if another process holds it.
    """
    file = lock_file(folder)
    while (descriptor := lock(file)) is not None:
        if not _is_at(file, descriptor):  # the process that had the lock removed the file after it was opened here
            os.close(descriptor)
            continue
        try:
            yield True
        finally:
            with suppress(OSError):
                file.unlink()
            os.close(descriptor)
        return
    yield False


@contextmanager
def waiting_lock(folder: Path, say: Callable[[], None]) -> Iterator[None]:
    """Lock a folder, or a file, as `folder_lock`; while another process has the lock, call `say` once, and wait.

    The folder above it is created if it is missing, also if another process removes it meanwhile.
    """
    with ExitStack() as lock:
        waits = False
        while not _enters(lock, folder):
            if not waits:
                say()
                waits = True
            time.sleep(WAITING_SECONDS)
        yield


def _enters(stack: ExitStack, folder: Path) -> bool:
    """Whether the lock of a folder is free; it is then held by `stack`."""
    while True:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # removed since
            return stack.enter_context(folder_lock(folder))


def remove_old_lock(folder: Path) -> None:
    """Remove the lock file of a process that was killed; that of a living one stays."""
    if lock_file(folder).exists():
        with suppress(OSError), folder_lock(folder):
            pass


def _is_at(file: Path, descriptor: int) -> bool:
    """Whether the open file is still the one at this path."""
    os.close(os.open(file.parent, os.O_RDONLY))  # after this, an NFS client does not answer from its cache
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESTALE):  # NFS: another machine has removed the open file
            return False
        raise


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Hold the lock for writing the file or folder `place`; waiting for another process is logged."""
    place.parent.mkdir(parents=True, exist_ok=True)
    file = lock_file(place)
    descriptor = lock(file)
    if descriptor is None:
        log.info("waiting for another process that prepares %s", place.name)
        descriptor = lock(file, wait=True)
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)
