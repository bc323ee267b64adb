"""The working directory of an unfinished run, and how it becomes a run directory.

A run directory appears complete, by one rename, when the run has ended. Until then its files are in the working
directory `<name>.partial-<key>` next to it. `key` is the hash of configuration and code: a run never resumes the work
of another configuration or of other code. The process that trains the run has the lock of the run directory.
"""

import glob
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.atomic import TEMPORARY
from fedflat.bench.files.locks import waiting_lock
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.code_version import code_fingerprint
from fedflat.bench.training.run_directory import SNAPSHOTS, is_complete

UNFINISHED = ".partial-"
"""The part of a working directory's name between the name of the run and the key."""


@contextmanager
def alone(path: Path, config: RunConfig, progress: Progress) -> Iterator[None]:
    """Hold the lock of a run; wait for another process that trains it."""

    def say() -> None:
        progress(f"seed {config.seed}: waits for another process, which trains '{path}'")

    with ExitStack() as lock:
        with _one_line_errors(path):
            lock.enter_context(waiting_lock(path, say))
        yield


def working_directory(path: Path, config: RunConfig) -> Path:
    """The working directory of a run, without what a killed process was writing; the run's lock must be held."""
    work = path.with_name(f"{path.name}{UNFINISHED}{short_hash(f'{config.identity}:{code_fingerprint()}', digits=8)}")
    with _one_line_errors(work):
        (work / SNAPSHOTS).mkdir(parents=True, exist_ok=True)
    for half_written in work.rglob(TEMPORARY):  # left by a killed process
        half_written.unlink()
    return work


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = "lock files in" if error.filename is None else "write to"
        raise UserError(f"cannot {what} '{path.parent}': {error.strerror}") from None


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


def unfinished_runs(store: Path) -> list[Path]:
    """The working directories of unfinished runs in a store, and old runs that a killed process was removing."""
    return _left(store, "seed-*", "*/*/*/*/")


def run_of(left: Path) -> Path:
    """The run directory to which one of `unfinished_runs` belongs; a run directory is its own."""
    return left.with_name(left.name.removeprefix(".").partition(".")[0])


def _left(folder: Path, name: str, above: str = "") -> list[Path]:
    working = [one for one in folder.glob(f"{above}{name}{UNFINISHED}*") if not is_complete(one)]
    return sorted([*working, *folder.glob(f"{above}.{name}.replaced-*")])


def remove_stale(path: Path, log: Callable[[str], None]) -> None:
    """Remove what killed processes have left next to the finished run in `path`, with a line in the log for each.

    These are working directories of other configurations and other code, which no run in `path` resumes, and old runs
    that were being replaced. Complete runs are left. The run's lock must be held.
    """
    for folder in _left(path.parent, glob.escape(path.name)):
        try:
            shutil.rmtree(folder)
            log(f"removed '{folder}', left by a killed process of another configuration or other code")
        except OSError as error:
            log(f"cannot remove '{folder}': {error.strerror}")
