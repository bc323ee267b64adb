"""Several clients at the same time, each on one core with a copy of the module; best for large models on many cores.

Splitting one client's small convolutions among many cores gains little; training several clients side by side gains
nearly the number of cores. Each client is computed as by the loop with one thread, so the numbers are the same bits.
"""

from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field, fields
from threading import Event

import torch
from torch import Tensor

from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.local import LocalResult, LocalTraining, LocalWork, MiniBatchGradient, Probe
from fedflat.bench.engine.objective import Objective
from fedflat.bench.methods.base import CannotBatchError, ClientRound


class Parallel:
    """The back end that trains as many clients side by side as torch has threads when it is made.

    Memory: the module and the activations of each of these clients.
    """

    warm_up: int = 1

    def __init__(self) -> None:
        # Reading the number also fixes it for this thread, which otherwise takes over the number of new threads.
        clients = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(clients, "client", torch.set_num_threads, (1,))
        self._free: dict[Objective, list[Objective]] = {}

    def prepare(self, local: LocalTraining, works: Sequence[LocalWork]) -> None:
        """See `Backend`. Each client's batches are drawn when its training begins, on its own core."""

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """See `Backend`. Raises `CannotBatchError` for probes, which watch one client at a time."""
        if probe is not None:
            raise CannotBatchError("probes watch one client at a time")
        free = self._free.setdefault(local.objective, [])

        def train(work: LocalWork) -> LocalResult:
            try:
                objective = free.pop()
            except IndexError:
                objective = Objective(
                    deepcopy(local.objective.module), local.objective.precision, buffer_mode=local.objective.buffer_mode
                )
            objective.channels_last = local.objective.channels_last
            given = {field.name: getattr(local, field.name) for field in fields(local)}
            [result] = Loop().train(_Stoppable(**given | {"objective": objective}, stopped=stopped), [work])
            free.append(objective)
            return result

        longest_first = sorted(range(len(works)), key=lambda k: -len(works[k].batches))
        stopped = Event()
        futures: dict[int, Future[LocalResult]] = {}
        try:
            for k in longest_first:
                futures[k] = self._pool.submit(train, works[k])
            return [futures[k].result() for k in range(len(works))]
        finally:  # after an error or Ctrl-C, no client is trained on
            stopped.set()
            for future in futures.values():
                future.cancel()


@dataclass(frozen=True, eq=False)
class _Stoppable(LocalTraining):
    """Local training that ends before the next step when `stopped` is set."""

    stopped: Event = field(default_factory=Event)

    def step(self, w: Tensor, client: ClientRound, gradient: MiniBatchGradient) -> Tensor:
        if self.stopped.is_set():
            raise CancelledError
        return super().step(w, client, gradient)
