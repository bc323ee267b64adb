"""Progress reports: functions that receive one line at a time."""

from collections.abc import Callable

Progress = Callable[[str], None]
"""Receives each line that a command shows while it works."""

PROGRESS_SECONDS = 5.0
"""Minimum time between two reports of the same work."""


def silent(line: str) -> None:
    """Discard the line."""
