"""Work by the speed of a client's device, which stays the same in all rounds."""

from typing import Literal

from fedflat.bench.engine.work.base import DrawnWork


class WorkByClient(DrawnWork):
    """A number from `least` to all is drawn once for each client: slow clients are slow in every round."""

    name: Literal["by_client"] = "by_client"

    def amount(self, most: int, seed: int, t: int, client: int) -> int:
        """The number of this client."""
        return self.drawn(most, seed, client)

    def mean(self, most: int) -> float:
        """The mean of least and most."""
        return self.mean_of_drawn(most)
