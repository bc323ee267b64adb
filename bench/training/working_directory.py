"""The working directory of an unfinished run, and how it becomes a run directory.

A run directory appears complete, by one rename, when the run has ended. Until then its files are in the working
directory `<name>.partial-<key>` next to it. `key` is the hash of configuration and code: a run never resumes the work
of another configuration or of other code.
"""

import glob
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.experiments.run_config import RunConfig
from bench.files.atomic import TEMPORARY
from bench.files.locks import lock
from bench.input.content import short_hash
from bench.input.errors import UserError
from bench.training.code_version import code_fingerprint
from bench.training.run_directory import SNAPSHOTS, is_complete

UNFINISHED = ".partial-"
"""The part of a working directory's name between the name of the run and the key."""


@contextmanager
def working_directory(path: Path, config: RunConfig) -> Iterator[Path]:
    """The working directory of a run, locked while it is in use; a `UserError` if another process holds the lock."""
    key = short_hash(f"{config.identity}:{code_fingerprint()}", digits=8)
    work = path.with_name(f"{path.name}{UNFINISHED}{key}")
    try:
        (work / SNAPSHOTS).mkdir(parents=True, exist_ok=True)
        descriptor = lock(work)
    except OSError as error:
        raise UserError(f"cannot write to '{work.parent}': {error.strerror}") from None
    if descriptor is None:
        raise UserError(f"another process is training '{path}'")
    try:
        if not work.exists() or not os.path.samestat(os.fstat(descriptor), work.stat()):
            # Another process finished the run between the two calls above.
            raise UserError(f"another process is training '{path}'")
        for half_written in work.rglob(TEMPORARY):  # left by a killed process
            half_written.unlink()
        yield work
    finally:
        os.close(descriptor)


def publish(work: Path, path: Path) -> None:
    """Rename a complete working directory to the run directory; an old run in its place is removed afterwards."""
    replaced = path.with_name(f".{path.name}.replaced-{os.getpid()}")
    try:
        if path.exists():
            path.rename(replaced)
        work.rename(path)
    except OSError as error:
        raise UserError(f"cannot move the finished run to '{path}': {error.strerror}") from None
    shutil.rmtree(replaced, ignore_errors=True)


def remove_stale(path: Path, log: Callable[[str], None]) -> None:
    """Remove what killed processes have left next to the finished run in `path`, with a line in the log for each.

    These are working directories of other configurations and other code, which no run in `path` resumes, and old runs
    that were being replaced. Complete runs, and what another process uses, are left.
    """
    name = glob.escape(path.name)
    unfinished = [folder for folder in path.parent.glob(f"{name}{UNFINISHED}*") if not is_complete(folder)]
    for folder in sorted([*unfinished, *path.parent.glob(f".{name}.replaced-*")]):
        try:
            descriptor = lock(folder)
            if descriptor is None:  # in use
                continue
            try:
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)
        except OSError as error:
            log(f"cannot remove '{folder}': {error.strerror}")
        else:
            log(f"removed '{folder}', left by a killed process of another configuration or other code")
