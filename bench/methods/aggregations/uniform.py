"""p_i = 1/M: every active client counts equally."""

from torch import Tensor

from fedflat.bench.methods.aggregations.base import AggregationRule


class Uniform(AggregationRule):
    """Equal weights."""

    name = "uniform"

    @staticmethod
    def shares(n: Tensor) -> Tensor:
        """1."""
        return n.new_ones(len(n))
