"""Several items in one command, such as the cells of `fedflat run`, and the resources that the command used."""

import resource
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from bench.input.errors import UserError


class Attempts:
    """The items of one command. If one of several fails, the error is shown at once, and the others are still done."""

    def __init__(self, kind: str, count: int) -> None:
        self._kind, self._count = kind, count
        self._failed: list[str] = []

    @contextmanager
    def at(self, item: object) -> Iterator[None]:
        """An exception in this block is a failure of the item; if it is the only item, the exception is raised."""
        try:
            yield
        except Exception as error:
            if self._count == 1:
                raise
            self._failed.append(str(item))
            message = str(error) if isinstance(error, UserError) else traceback.format_exc()
            typer.echo(f"fedflat: {item}: {message}", err=True)

    def check(self) -> None:
        """A `UserError` that names the items that failed, if there are any."""
        if self._failed:
            failed = ", ".join(self._failed)
            raise UserError(f"{len(self._failed)} of {self._count} {self._kind} failed: {failed}")


def resources_used(started: float) -> str:
    """The time since `started` (seconds of `time.perf_counter`), processor time and peak memory of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss // 1024
    return f"{time.perf_counter() - started:.1f} s, {cpu:.1f} s of processor time, at most {peak} MiB of memory"
