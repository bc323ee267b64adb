"""Trains the runs of a cell: chooses a back end, and trains one round of several runs at a time."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from bench.engine.federation import FederationState
from bench.engine.local import LocalResult, LocalWork
from bench.input.errors import UserError
from bench.methods.base import CannotBatchError
from bench.training.calibration import choose_engine, train_together
from bench.training.engine_choice import EngineChoice
from bench.training.training_run import RoundResult, TrainingRun


class CellTrainer:
    """Trains runs that differ in their seeds only; `choice` is how the engine computes them."""

    def __init__(self, runs: Sequence[TrainingRun]) -> None:
        self._runs = runs
        self._next: dict[TrainingRun, tuple[FederationState, list[LocalWork]]] = {}
        first = runs[0]
        resumed = [
            run.engine_choice
            for run in runs
            if run.engine_choice is not None and run.engine_choice.is_possible_on(first.device)
        ]
        choice = resumed[0] if resumed else choose_engine(first.setup, first.state, first.log.info)
        backend = first.config.engine.backend
        if resumed and backend not in ("auto", choice.backend):
            first.log.info("engine: continues as the run began; engine.backend %s is ignored", backend)
        unfinished = [run for run in runs if not run.ended]
        setups, states = [run.setup for run in unfinished], [run.state for run in unfinished]
        self._use(replace(choice, together=train_together(setups, states, choice, first.log.info)))

    def _use(self, choice: EngineChoice) -> None:
        self.choice = choice
        self._backend = choice.prepare([run.setup.objective for run in self._runs])
        for run in self._runs:
            run.engine_choice = choice
            run.log.info("engine: %s", choice)

    def train_round(self, runs: Sequence[TrainingRun]) -> list[RoundResult]:
        """Train one round of runs that have finished the same number of rounds; one call trains all their clients.

        If a batched back end cannot compute the round, a simpler one replaces it from this round on; if memory does not
        suffice, it computes fewer clients at once.
        """
        started = time.perf_counter()
        local = runs[0].setup.federation.local
        prepared, self._next = self._next, {}
        works = []
        for run in runs:
            state, work = prepared.get(run, (None, []))
            works.append(work if state is run.state else run.setup.work(run.state))
        clients = [client for work in works for client in work]
        results: list[LocalResult] = []
        while not results:
            instead = None
            try:
                results = self._backend.train(local, clients)
            except (CannotBatchError, torch.OutOfMemoryError) as error:
                instead = self._instead(error, len(clients))
            if instead is not None:  # not before the error, which holds the tensors of the round, is gone
                choice, reason = instead
                runs[0].log.info("engine: %s", reason)
                if runs[0].device.type == "cuda":
                    torch.cuda.empty_cache()
                self._use(choice)
        remaining = iter(results)
        trained = [(run, work, [next(remaining) for _ in work]) for run, work in zip(runs, works, strict=True)]
        ends = [run.setup.federation.aggregate(run.state, work, own) for run, work, own in trained]
        self._prepare(runs, [state for state, _ in ends])  # while a GPU computes this round
        numbers = [measurements.numbers() for _, measurements in ends]  # last: transfers wait for the GPU
        seconds = (time.perf_counter() - started) / len(runs)
        return [
            RoundResult(state, measurements, _local_models(work, own) if run.saves_local_models else {}, seconds)
            for (run, work, own), (state, _), measurements in zip(trained, ends, numbers, strict=True)
        ]

    def _instead(self, error: CannotBatchError | torch.OutOfMemoryError, clients: int) -> tuple[EngineChoice, str]:
        """The choice for a round with these clients that has failed, and the reason in words; the error if none."""
        if isinstance(error, CannotBatchError):
            other = self.choice.simpler()
            reason = f"this round is not possible in a {self.choice.backend}: {error}"
        else:
            other = self.choice.smaller(clients)
            reason = f"not enough memory: {str(error).partition('. ')[0]}"
        if other is None:
            raise error
        if other.backend != self.choice.backend and self._runs[0].config.engine.backend != "auto":
            raise UserError(f"engine.backend {self.choice.backend} is not possible here: {reason}") from None
        return other, reason

    def _prepare(self, runs: Sequence[TrainingRun], states: Sequence[FederationState]) -> None:
        """Do the host's part of the next round of the runs that have one, from their states after this round.

        An error is ignored here: it is raised again if the round begins.
        """
        going_on = [
            (run, state) for run, state in zip(runs, states, strict=True) if state.round < run.config.training.rounds
        ]
        with suppress(Exception):
            self._next = {run: (state, run.setup.work(state)) for run, state in going_on}
            clients = [client for _, work in self._next.values() for client in work]
            if clients:
                self._backend.prepare(runs[0].setup.federation.local, clients)


def _local_models(work: Sequence[LocalWork], results: Sequence[LocalResult]) -> dict[int, Tensor]:
    """The models w_i⁺ `[P]` by client."""
    return {client.client: result.w for client, result in zip(work, results, strict=True)}
