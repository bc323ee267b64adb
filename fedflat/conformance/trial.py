"""The small federation of the checks: four clients with a few of scikit-learn's digits, and three rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor, nn

from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.data.sources.digits import Digits
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import LocalResult, LocalWork, Probe
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.methods.method import Method

SIZES = (7, 10, 15, 19)
"""The clients' numbers of samples; with mini-batches of 5, they take two to four steps, the last ones shorter."""

ROUNDS = ((0, 1, 2), (1, 2, 3), (0, 3))
"""The clients that take part in each round: each of them twice."""

Train = Callable[[Federation, Sequence[LocalWork]], list[LocalResult]]


@cache
def _digits() -> tuple[Tensor, Tensor]:
    train, _ = Digits().load().on(torch.device("cpu"))
    count = sum(SIZES)
    return train.images[:count], train.labels[:count]


@dataclass(frozen=True)
class TrialRun:
    """A method on the clients. `flat`: the loss is constant, and all gradients are zero, at weights that are not."""

    method: Method
    dtype: torch.dtype = torch.float64
    flat: bool = False

    def federation(self) -> Federation:
        """A new federation; the model has 460 parameters, 397 if it is flat."""
        images, labels = _digits()
        classes = 1 if self.flat else 10
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, classes)).to(self.dtype)
        shift, factor = (torch.tensor(value, dtype=self.dtype) for value in (5.0, 1 / 6))
        data = DeviceData(images, labels * 0 if self.flat else labels, shift, factor)
        edges = accumulate(SIZES, initial=0)
        batches = EpochBatches([np.arange(a, b) for a, b in pairwise(edges)], epochs=1, batch_size=5, seed=0)
        return Federation(self.method, Objective(model), data, batches, SIZES, StepSettings(lr=0.1), seed=0)

    def states(self, rounds: int = len(ROUNDS), train: Train | None = None) -> list[FederationState]:
        """The state before the first round, and after each of the rounds."""
        federation = self.federation()
        state = federation.start(federation.objective.initial())
        states = [state]
        for active in ROUNDS[:rounds]:
            states.append(self.next_state(federation, states[-1], active, train or in_a_loop))
        return states

    def resumed(self, state: FederationState) -> FederationState:
        """The last state, if training goes on from this one in another process."""
        federation = self.federation()
        for active in ROUNDS[state.round :]:
            state = self.next_state(federation, state, active, in_a_loop)
        return state

    @staticmethod
    def next_state(
        federation: Federation, state: FederationState, active: Sequence[int], train: Train
    ) -> FederationState:
        """The state after a round with these clients."""
        works = federation.work(state, active)
        return federation.aggregate(state, works, train(federation, works))[0]


def in_a_loop(federation: Federation, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
    """One client after the other, in the order of `works`."""
    return Loop().train(federation.local, works, probe)
