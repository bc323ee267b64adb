"""The base of all kinds of availability."""

import math
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from fedflat.bench.input.frozen import Frozen


class Availability(Frozen):
    """Which clients can take part in a round: a function of seed, round and client, so the same for every method."""

    name: str

    @property
    def label(self) -> str:
        """Name and parameters, for paths and tables."""
        return self.name

    def check(self, clients: int, rounds: int) -> None:
        """A `UserError` if the availability does not suit this number of clients, or of rounds."""

    def rounds(self, clients: int) -> float:
        """The number of rounds for which it is known."""
        return math.inf

    @abstractmethod
    def clients_at(self, clients: int, seed: int, t: int) -> NDArray[np.int64]:
        """The sorted ids of the available clients at time t, from 0; possibly none."""

    @abstractmethod
    def mean_share(self, clients: int) -> float:
        """The expected share of available ones of this number of clients."""
