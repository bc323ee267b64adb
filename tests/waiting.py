"""Waiting for what another process or thread does."""

import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], object],
    seconds: float = 60,
    alive: Callable[[], bool] = lambda: True,
    pause: float = 0.005,
) -> None:
    """Wait until a condition holds; an error if `alive` is false before, because the process has ended."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert alive(), "the process has ended before"
        if time.monotonic() > deadline:
            raise TimeoutError(f"not after {seconds} s")
        time.sleep(pause)
