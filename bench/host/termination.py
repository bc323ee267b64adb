"""What the process does when the system asks it to end, for example when a Slurm job has used up its time."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _TerminatedError(BaseException):
    """Raised by SIGTERM. It is no `SystemExit`, which functions of users may raise and FedFlat reports as an error."""


@contextmanager
def tidy_when_terminated() -> Iterator[None]:
    """In the block, SIGTERM runs `finally` blocks, which can remove temporary files, before it ends the process.

    A second one is ignored meanwhile. Nothing changes in other threads, which receive no signals, and if the program
    handles SIGTERM itself.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    except _TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # removing many files can take seconds
    raise _TerminatedError
