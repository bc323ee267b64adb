"""Work of all clients in full."""

from typing import Literal

from fedflat.bench.engine.work.base import Work


class FullWork(Work):
    """Every client does all local steps, or epochs."""

    name: Literal["full"] = "full"

    def amount(self, most: int, seed: int, t: int, client: int) -> int:
        """All."""
        return most

    def mean(self, most: int) -> float:
        """All."""
        return most
