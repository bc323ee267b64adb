"""Batch samplers: which samples each local step of a client uses, decided on the host before the round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.numerics.streams import numpy_stream


class BatchSampler(Protocol):
    """The local steps of a client in a round, as sample indices into the training data; len() is K_i."""

    def __call__(self, client: int, round_index: int) -> list[Tensor]:
        """One index tensor `[B]` per local step."""
        ...

    def one_pass(self, client: int) -> list[Tensor]:
        """All of the client's data once, in stored order."""
        ...


@dataclass(frozen=True)
class EpochBatches:
    """Whole epochs over the client's data, reshuffled in each epoch; a short last batch counts as a step."""

    split: Sequence[NDArray[np.int64]]
    epochs: int
    batch_size: int
    seed: int

    def __call__(self, client: int, round_index: int) -> list[Tensor]:
        """E · ⌈n_i/B⌉ steps."""
        own = self.split[client]
        steps: list[Tensor] = []
        for epoch in range(self.epochs):
            order = numpy_stream(self.seed, "batches", round_index, client, epoch).permutation(len(own))
            steps += torch.from_numpy(own[order]).split(self.batch_size)
        return steps

    def one_pass(self, client: int) -> list[Tensor]:
        """Batches of the same size as those of the local steps."""
        return list(torch.from_numpy(self.split[client]).split(self.batch_size))


@dataclass(frozen=True)
class FullBatches:
    """A given number of steps, each on all of the client's data in stored order: no randomness."""

    split: Sequence[NDArray[np.int64]]
    steps: int

    def __call__(self, client: int, round_index: int) -> list[Tensor]:
        """The same indices in every step."""
        return self.one_pass(client) * self.steps

    def one_pass(self, client: int) -> list[Tensor]:
        """One batch with all of the data."""
        return [torch.from_numpy(self.split[client])]


@dataclass(frozen=True)
class StepBatches:
    """A given number of mini-batch steps, over as many reshuffled epochs as they need."""

    split: Sequence[NDArray[np.int64]]
    steps: int
    batch_size: int
    seed: int

    def __call__(self, client: int, round_index: int) -> list[Tensor]:
        """The first `steps` batches of the epochs."""
        epochs = -(-self.steps * self.batch_size // len(self.split[client])) + 1
        return self._epochs(epochs)(client, round_index)[: self.steps]

    def one_pass(self, client: int) -> list[Tensor]:
        """Batches of the same size as those of the local steps."""
        return self._epochs(1).one_pass(client)

    def _epochs(self, epochs: int) -> EpochBatches:
        return EpochBatches(self.split, epochs, self.batch_size, self.seed)
