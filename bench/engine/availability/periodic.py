"""Clients that are available at the same time of each day, such as at night, when phones are charged."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedflat.bench.engine.availability.base import Availability
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream


class PeriodicAvailability(Availability):
    """Each client in `available` of every `period` rounds, from a round on that is drawn for the client by the seed."""

    name: Literal["periodic"] = "periodic"
    period: Count = Field(examples=[24], description="rounds of a period, such as a day")
    available: Count = Field(
        examples=[6], description="consecutive rounds of each period in which a client is available"
    )

    @model_validator(mode="after")
    def _within(self) -> "PeriodicAvailability":
        if self.available > self.period:
            raise UserError(f"available = {self.available} (allowed: at most the period, {self.period})")
        return self

    @property
    def label(self) -> str:
        """For example periodic-6-in-24."""
        return f"{self.name}-{self.available}-in-{self.period}"

    def clients_at(self, clients: int, seed: int, t: int) -> NDArray[np.int64]:
        """Those whose part of the period it is."""
        begins = numpy_stream(seed, "availability").integers(self.period, size=clients)
        return np.flatnonzero((t - begins) % self.period < self.available)

    def mean_share(self, clients: int) -> float:
        """The share of a period."""
        return self.available / self.period
