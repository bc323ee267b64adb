"""The working directory of an unfinished run, and how it becomes a run directory.

A run directory appears complete, by one rename, when the run has ended. Until then its files are in the working
directory `<name>.partial-<key>` next to it. `key` is the hash of configuration and code: a run never resumes the work
of another configuration or of other code.
"""

import glob
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.atomic import TEMPORARY
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.code_version import code_fingerprint
from fedflat.bench.training.run_directory import PROVENANCE, SNAPSHOTS, is_complete
from fedflat.bench.training.training_run import AT_START

UNFINISHED = ".partial-"
"""The part of a working directory's name between the name of the run and the key."""


@contextmanager
def locked_directory(path: Path, config: RunConfig) -> Iterator[Path]:
    """The path of a run's working directory, locked; a `UserError` if another process holds the lock."""
    key = short_hash(f"{config.identity}:{code_fingerprint()}", digits=8)
    work = path.with_name(f"{path.name}{UNFINISHED}{key}")
    with ExitStack() as lock:
        with _one_line_errors(work):
            work.parent.mkdir(parents=True, exist_ok=True)
            if not lock.enter_context(folder_lock(work)):
                raise UserError(f"another process is training '{path}'")
        yield work


@contextmanager
def working_directory(path: Path, config: RunConfig) -> Iterator[Path]:
    """The working directory of a run, locked while it is in use; a `UserError` if another process holds the lock."""
    with locked_directory(path, config) as work:
        with _one_line_errors(work):
            if (work / PROVENANCE).exists() and not (is_complete(work) or (work / AT_START).exists()):
                shutil.rmtree(work)  # left by a process that was killed while it took another experiment's run
            (work / SNAPSHOTS).mkdir(parents=True, exist_ok=True)
        for half_written in work.rglob(TEMPORARY):  # left by a killed process
            half_written.unlink()
        yield work


@contextmanager
def _one_line_errors(work: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = "lock files in" if error.filename is None else "write to"
        raise UserError(f"cannot {what} '{work.parent}': {error.strerror}") from None


def publish(work: Path, path: Path) -> None:
    """Rename a complete working directory to the run directory; an old run in its place is removed afterwards."""
    replaced = path.with_name(f".{path.name}.replaced-{secrets.token_hex(4)}")
    try:
        if path.exists():
            path.rename(replaced)
        work.rename(path)
    except OSError as error:
        raise UserError(f"cannot move the finished run to '{path}': {error.strerror}") from None
    shutil.rmtree(replaced, ignore_errors=True)


def remove_locks(path: Path) -> None:
    """Remove the locks of processes that were killed after the run in `path` had been published."""
    for file in path.parent.glob(f".{glob.escape(path.name)}{UNFINISHED}*.lock"):
        folder = file.with_name(file.stem[1:])
        if not folder.exists():
            with suppress(OSError), folder_lock(folder):
                pass


def remove_stale(path: Path, log: Callable[[str], None]) -> None:
    """Remove what killed processes have left next to the finished run in `path`, with a line in the log for each.

    These are working directories of other configurations and other code, which no run in `path` resumes, their locks,
    and old runs that were being replaced. Complete runs, and what another process uses, are left.
    """
    name = glob.escape(path.name)
    locks = path.parent.glob(f".{name}{UNFINISHED}*.lock")
    working = {*path.parent.glob(f"{name}{UNFINISHED}*"), *(file.with_name(file.stem[1:]) for file in locks)}
    for folder in sorted([*working, *path.parent.glob(f".{name}.replaced-*")]):
        try:
            with folder_lock(folder) as is_free:
                if is_free and folder.exists() and not (folder in working and is_complete(folder)):
                    shutil.rmtree(folder)
                    log(f"removed '{folder}', left by a killed process of another configuration or other code")
        except OSError as error:
            log(f"cannot remove '{folder}': {error.strerror}")
