"""p_i = n_i/Σn_j, as in FedAvg (McMahan et al. 2017)."""

from torch import Tensor

from fedflat.bench.methods.aggregations.base import AggregationRule


class BySamples(AggregationRule):
    """Proportional to the number of samples."""

    name = "samples"

    @staticmethod
    def shares(n: Tensor) -> Tensor:
        """n_i."""
        return n
