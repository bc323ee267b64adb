"""The base of all aggregation rules."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class AggregationRule(ABC):
    """How much each of the M active clients counts in means over clients. It has no options."""

    name: ClassVar[str]

    @classmethod
    def weights(cls, sizes: list[int]) -> Tensor:
        """The weights p_i `[M]`, which sum to 1, in float64. `sizes`: the clients' numbers n_i of training samples."""
        shares = cls.shares(torch.tensor(sizes, dtype=torch.float64))
        return shares / shares.sum()

    @staticmethod
    @abstractmethod
    def shares(n: Tensor) -> Tensor:
        """What p_i is proportional to `[M]`; n `[M]` are the clients' numbers of training samples."""
