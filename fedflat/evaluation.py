"""What a file with a metric imports, and may rely on: base classes, and the mark of a function.

`fedflat.metrics` is another thing: the function that reads the rounds of runs.
"""

from fedflat.bench.metrics.base import Metric, OfConfusion, OfSamples
from fedflat.bench.metrics.of_clients import OfClients
from fedflat.bench.metrics.user_metric import metric

__all__ = ["Metric", "OfClients", "OfConfusion", "OfSamples", "metric"]
