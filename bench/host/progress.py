"""Progress reports: one line at a time, to whoever called."""

from collections.abc import Callable

Progress = Callable[[str], None]
"""Receives each line that a command shows while it works."""

PROGRESS_SECONDS = 5.0
"""Least time between two reports of the same work."""


def silent(line: str) -> None:
    """Discard the line."""
