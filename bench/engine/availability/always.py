"""Clients that are always available."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedflat.bench.engine.availability.base import Availability


class AlwaysAvailable(Availability):
    """All clients in all rounds."""

    name: Literal["always"] = "always"

    def clients_at(self, clients: int, seed: int, t: int) -> NDArray[np.int64]:
        """All."""
        return np.arange(clients)

    def mean_share(self, clients: int) -> float:
        """1."""
        return 1.0
