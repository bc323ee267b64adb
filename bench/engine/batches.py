"""Batch samplers: which samples each local step of a client uses, decided on the host before the round."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedflat.bench.engine.work.base import Work
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream


class BatchSampler(Protocol):
    """The local steps of a client in a round, as sample indices into the training data; len() is K_i."""

    def __call__(self, client: int, round_index: int) -> list[Tensor]:
        """One index tensor `[B]` per local step."""
        ...

    def one_pass(self, client: int) -> list[Tensor]:
        """All of the client's data once, in stored order."""
        ...


def trained_in_epoch(samples: int, batch_size: int, *, drop_last: bool) -> int:
    """How many of a client's samples are in the batches of an epoch: without a short last batch, unless it is the only
    one."""
    return samples // batch_size * batch_size if drop_last and samples > batch_size else samples


@dataclass(frozen=True)
class EpochBatches:
    """Whole epochs over the client's data, reshuffled in each epoch; a short last batch counts as a step.

    `drop_last`: the last batch is left out if it is short, unless it is the only one of the epoch.
    """

    split: Sequence[NDArray[np.int64]]
    epochs: int
    batch_size: int
    seed: int
    drop_last: bool = False

    def __call__(self, client: int, round_index: int) -> list[Tensor]:
        """E · ⌈n_i/B⌉ steps; with `drop_last`, E · max(1, ⌊n_i/B⌋)."""
        own = self.split[client]
        used = trained_in_epoch(len(own), self.batch_size, drop_last=self.drop_last)
        steps: list[Tensor] = []
        for epoch in range(self.epochs):
            order = numpy_stream(self.seed, "batches", round_index, client, epoch).permutation(len(own))
            steps += torch.from_numpy(own[order[:used]]).split(self.batch_size)
        return steps

    def one_pass(self, client: int) -> list[Tensor]:
        """Batches of the same size as those of the local steps; the last one is kept even if it is short."""
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
    drop_last: bool = False

    def __call__(self, client: int, round_index: int) -> list[Tensor]:
        """The first `steps` batches of the epochs."""
        used = trained_in_epoch(len(self.split[client]), self.batch_size, drop_last=self.drop_last)
        epochs = -(-self.steps * self.batch_size // used) + 1
        return self._epochs(epochs)(client, round_index)[: self.steps]

    def one_pass(self, client: int) -> list[Tensor]:
        """Batches of the same size as those of the local steps."""
        return self._epochs(1).one_pass(client)

    def _epochs(self, epochs: int) -> EpochBatches:
        return EpochBatches(self.split, epochs, self.batch_size, self.seed, self.drop_last)


@dataclass(frozen=True)
class LessWork:
    """The first mini-batches of another sampler: those of the work that a client does in a round."""

    whole: BatchSampler
    local: "LocalSteps"
    split: Sequence[NDArray[np.int64]]
    seed: int

    def __call__(self, client: int, round_index: int) -> list[Tensor]:
        """The mini-batches of the client's steps, or epochs, in this round."""
        done = self.local.in_round(self.seed, round_index, client)
        return self.whole(client, round_index)[: done.count(len(self.split[client]))]

    def one_pass(self, client: int) -> list[Tensor]:
        """As the other sampler."""
        return self.whole.one_pass(client)


@dataclass(frozen=True)
class LocalSteps:
    """The local steps of an active client in a round: a number of `steps`, or of `epochs` over its data.

    `batch_size` None: each step, or epoch, is one step on all of the client's samples. `drop_last`: see `EpochBatches`.
    `work`: how many of them clients do; None: all.
    """

    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    drop_last: bool = False
    work: Work | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise UserError(
                "local training needs local_steps (mini-batches of a client per round) or local_epochs (passes over "
                "its data), and not both"
            )
        if self.work is not None:
            self.work.check(self._amount)

    @property
    def _amount(self) -> int:
        return self.steps or self.epochs or 0

    def _with_amount(self, amount: int) -> "LocalSteps":
        """As many steps, or epochs, for all clients."""
        if self.steps is not None:
            return replace(self, steps=amount, work=None)
        return replace(self, epochs=amount, work=None)

    def in_round(self, seed: int, t: int, client: int) -> "LocalSteps":
        """The local steps that a client does in round t."""
        return self if self.work is None else self._with_amount(self.work.amount(self._amount, seed, t, client))

    def mean_share(self) -> float:
        """The expected share of the steps that clients do."""
        return 1.0 if self.work is None else self.work.mean(self._amount) / self._amount

    def count(self, samples: int) -> int:
        """The number of steps of a client with this number of samples that does all of its work."""
        return self.steps if self.steps is not None else (self.epochs or 0) * self._steps_of_epoch(samples)

    def images(self, samples: int) -> int:
        """The number of samples in all steps of a client with this number of samples, repeated ones included."""
        epochs, further = divmod(self.count(samples), self._steps_of_epoch(samples))
        return epochs * self._trained(samples) + further * (self.batch_size or 0)

    def sampler(self, split: Sequence[NDArray[np.int64]], seed: int) -> BatchSampler:
        """The mini-batches of clients with these samples."""
        if self.work is not None:
            return LessWork(replace(self, work=None).sampler(split, seed), self, split, seed)
        if self.batch_size is None:
            return FullBatches(split, self.count(0))
        if self.steps is None:
            return EpochBatches(split, self.epochs or 0, self.batch_size, seed, self.drop_last)
        return StepBatches(split, self.steps, self.batch_size, seed, self.drop_last)

    def _trained(self, samples: int) -> int:
        if self.batch_size is None:
            return samples
        return trained_in_epoch(samples, self.batch_size, drop_last=self.drop_last)

    def _steps_of_epoch(self, samples: int) -> int:
        return 1 if self.batch_size is None else -(-self._trained(samples) // self.batch_size)
