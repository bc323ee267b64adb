"""Progress reports: functions that receive one line at a time."""

import time
from collections.abc import Callable

Progress = Callable[[str], None]
"""Receives each line that a command shows while it works."""

PROGRESS_SECONDS = 5.0
"""Minimum time between two reports of the same work."""


class Timer:
    """Says when something is due that is done at most once in a number of seconds, for the first time after these."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether the seconds have passed; if so, they begin anew."""
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


def silent(line: str) -> None:
    """Discard the line."""
