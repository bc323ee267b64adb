"""The accuracy of the client for which the global model is worst."""

from fedflat.bench.metrics.base import Floats
from fedflat.bench.metrics.of_clients import OfClients


class WorstClient(OfClients):
    """The lowest accuracy of a client."""

    name = "worst_client"
    title = "accuracy of the worst client"
    plural = "accuracies of the worst client"
    better = "higher"
    unit = "%"

    def of(self, accuracies: Floats) -> float:
        """The minimum."""
        return float(accuracies.min())
