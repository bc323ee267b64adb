"""Stragglers, as in FedProx's experiments (Li et al., MLSys 2020): 0, 50 or 90 % of the clients do less work."""

from typing import Literal

from pydantic import Field

from fedflat.bench.engine.work.base import DrawnWork
from fedflat.bench.numerics.streams import numpy_stream


class Stragglers(DrawnWork):
    """In each round, a client is a straggler with a probability, and then does a number of steps that is drawn.

    FedProx makes exactly this share of a round's participants stragglers; here each client draws by itself, so that its
    work does not depend on who else takes part.
    """

    name: Literal["stragglers"] = "stragglers"
    share: float = Field(gt=0, le=1, examples=[0.5], description="probability that a client is a straggler in a round")

    def amount(self, most: int, seed: int, t: int, client: int) -> int:
        """The number drawn, or all."""
        late = numpy_stream(seed, "straggler", t, client).random() < self.share
        return self.drawn(most, seed, t, client) if late else most

    def mean(self, most: int) -> float:
        """Of stragglers and the others."""
        return self.share * self.mean_of_drawn(most) + (1 - self.share) * most
