"""Clients that are available by chance."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedflat.bench.engine.availability.base import Availability
from fedflat.bench.numerics.streams import numpy_stream


class BernoulliAvailability(Availability):
    """In each round, each client with the same probability, whatever the others and earlier rounds are."""

    name: Literal["bernoulli"] = "bernoulli"
    probability: float = Field(
        gt=0, le=1, examples=[0.5], description="probability that a client is available in a round"
    )

    @property
    def label(self) -> str:
        """For example bernoulli-0.5."""
        return f"{self.name}-{self.probability:g}"

    def clients_at(self, clients: int, seed: int, t: int) -> NDArray[np.int64]:
        """Those that were drawn."""
        return np.flatnonzero(numpy_stream(seed, "availability", t).random(clients) < self.probability)

    def mean_share(self, clients: int) -> float:
        """The probability."""
        return self.probability
