"""The accuracy of the clients for which the global model is bad: the lowest decile over clients."""

import numpy as np

from fedflat.bench.metrics.base import Floats
from fedflat.bench.metrics.of_clients import OfClients


class LowestDecile(OfClients):
    """The 10 % quantile of the accuracies of clients, with linear interpolation."""

    name = "lowest_decile"
    title = "lowest decile of the clients' accuracies"
    plural = "lowest deciles of the clients' accuracies"
    better = "higher"
    unit = "%"

    def of(self, accuracies: Floats) -> float:
        """The quantile."""
        return float(np.quantile(accuracies, 0.1))
