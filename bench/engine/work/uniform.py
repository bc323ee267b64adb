"""Work that differs between clients and rounds, as in FedNova's experiments (Wang et al., NeurIPS 2020, with 2 to 5
epochs)."""

from typing import Literal

from fedflat.bench.engine.work.base import DrawnWork


class UniformWork(DrawnWork):
    """A number from `least` to all is drawn for each client and round."""

    name: Literal["uniform"] = "uniform"

    def amount(self, most: int, seed: int, t: int, client: int) -> int:
        """The number drawn."""
        return self.drawn(most, seed, t, client)

    def mean(self, most: int) -> float:
        """The mean of least and most."""
        return self.mean_of_drawn(most)
