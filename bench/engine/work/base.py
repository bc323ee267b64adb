"""The base of all kinds of work."""

from abc import abstractmethod

import numpy as np
from pydantic import Field

from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.numerics.streams import numpy_stream


class Work(Frozen):
    """How many of the local steps, or epochs, of `training` a client does in a round.

    It is a function of seed, round and client alone, so the same for every method.
    """

    name: str

    def check(self, most: int) -> None:
        """A `UserError` if the work does not suit this number of local steps, or epochs."""

    @abstractmethod
    def amount(self, most: int, seed: int, t: int, client: int) -> int:
        """The number of local steps, or epochs, of a client in round t, of `most`."""

    @abstractmethod
    def mean(self, most: int) -> float:
        """The expected number."""


class DrawnWork(Work):
    """A number of steps, or epochs, from `least` to all of them, which some clients draw."""

    least: Count = Field(default=1, description="fewest local steps, or epochs, of a client in a round")

    def check(self, most: int) -> None:
        """The least work is at most all of it."""
        if self.least > most:
            raise UserError(f"work: least = {self.least} (allowed: at most the local steps or epochs, {most})")

    def drawn(self, most: int, seed: int, *key: int) -> int:
        """A number from `least` to `most`, all of them equally likely, from the stream of this key."""
        return int(numpy_stream(seed, "work", *key).integers(self.least, most + 1))

    def mean_of_drawn(self, most: int) -> float:
        """The expected value of `drawn`."""
        return float(np.mean([self.least, most]))
