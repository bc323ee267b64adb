"""For commands with several items, such as the cells of `fedflat run`: failures of single items, and resources used."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fedflat.bench.input.errors import UserError, one_line
from fedflat.explained import explained, is_closed_pipe


class Attempts:
    """Collects failures of a command's items: the error of one item is shown at once, and the other items still run."""

    def __init__(self, kind: str, count: int) -> None:
        self._kind, self._count = kind, count
        self._failed: list[str] = []

    @contextmanager
    def at(self, item: object) -> Iterator[None]:
        """Record an exception in this block as a failure of the item; re-raise it if there is only one item."""
        try:
            yield
        except (Exception, SystemExit) as error:
            if self._count == 1 or is_closed_pipe(error):
                raise
            self._failed.append(str(item))
            text = explained(error)
            place = "" if f"'{item}" in text else f"{one_line(str(item))}: "
            typer.echo(f"fedflat: {place}{text}", err=True)

    def check(self) -> None:
        """Raise `UserError` with the names of the failed items, if there are any."""
        if self._failed:
            failed = ", ".join(self._failed)
            raise UserError(f"{len(self._failed)} of {self._count} {self._kind} failed: {failed}")


def resources_used(started: float) -> str:
    """The time since `started` (seconds of `time.perf_counter`), processor time and peak memory of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss // 1024
    return f"{time.perf_counter() - started:.1f} s, {cpu:.1f} s of processor time, at most {peak} MiB of memory"
