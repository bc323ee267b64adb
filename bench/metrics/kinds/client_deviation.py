"""How much the accuracy of the global model differs between clients."""

from fedflat.bench.metrics.base import Floats
from fedflat.bench.metrics.of_clients import OfClients


class ClientDeviation(OfClients):
    """The population standard deviation of the accuracies of clients."""

    name = "client_deviation"
    title = "deviation of the clients' accuracies"
    better = "lower"
    unit = "points"

    def of(self, accuracies: Floats) -> float:
        """The deviation."""
        return float(accuracies.std())
