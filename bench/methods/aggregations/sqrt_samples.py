"""p_i = √n_i/Σ√n_j: large clients count more than small ones, but do not decide alone."""

from torch import Tensor

from fedflat.bench.methods.aggregations.base import AggregationRule


class SqrtSamples(AggregationRule):
    """Proportional to the root of the number of samples."""

    name = "sqrt_samples"

    @staticmethod
    def shares(n: Tensor) -> Tensor:
        """√n_i."""
        return n.sqrt()
