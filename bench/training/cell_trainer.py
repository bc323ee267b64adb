"""Trains the runs of a cell: chooses how the engine computes them, and trains one round of several runs at a time."""

import time
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from bench.engine.backends.prepared import Prepared
from bench.engine.federation import FederationState
from bench.engine.local import LocalResult, LocalWork
from bench.training.calibration import choose_engine, train_together
from bench.training.engine import Engine
from bench.training.engine_choice import EngineChoice
from bench.training.training_run import RoundResult, TrainingRun

PREPARING = ("cuda",)
"""Devices that compute a round while the host prepares the next one. On a CPU, both would take turns: nothing would be
gained, and the next round's states would need memory earlier."""


class CellTrainer:
    """Trains runs that differ in their seeds only."""

    def __init__(self, runs: Sequence[TrainingRun]) -> None:
        self._runs = runs
        self._next: dict[TrainingRun, Prepared[FederationState, list[LocalWork]]] = {}
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
        choice = replace(choice, together=train_together(setups, states, choice, first.log.info))
        self._engine = Engine([run.setup.objective for run in runs], choice, backend, self._announce)

    @property
    def choice(self) -> EngineChoice:
        """How the engine computes the runs."""
        return self._engine.choice

    def _announce(self, news: str | EngineChoice) -> None:
        for run in self._runs:
            run.log.info("engine: %s", news)
            if isinstance(news, EngineChoice):
                run.engine_choice = news

    def train_round(self, runs: Sequence[TrainingRun]) -> list[RoundResult]:
        """Train one round of runs that have finished the same number of rounds; one call trains all their clients."""
        started = time.perf_counter()
        prepared, self._next = self._next, {}
        works = [prepared[run].take(run.state) if run in prepared else run.setup.work(run.state) for run in runs]
        clients = [client for work in works for client in work]
        remaining = iter(self._engine.train(runs[0].setup.federation.local, clients))
        trained = [(run, work, [next(remaining) for _ in work]) for run, work in zip(runs, works, strict=True)]
        ends = [run.setup.federation.aggregate(run.state, work, own) for run, work, own in trained]
        if runs[0].device.type in PREPARING:
            self._prepare(runs, [state for state, _ in ends])
        numbers = [measurements.numbers() for _, measurements in ends]  # last: transfers wait for the GPU
        seconds = (time.perf_counter() - started) / len(runs)
        return [
            RoundResult(state, measurements, _local_models(work, own) if run.saves_local_models else {}, seconds)
            for (run, work, own), (state, _), measurements in zip(trained, ends, numbers, strict=True)
        ]

    def _prepare(self, runs: Sequence[TrainingRun], states: Sequence[FederationState]) -> None:
        """Do the host's part of the next round of the runs that have one, from their states after this round.

        The next round raises an error that occurs here, if it begins.
        """
        clients: list[LocalWork] = []
        for run, state in zip(runs, states, strict=True):
            if state.round < run.config.training.rounds:
                self._next[run] = Prepared(run.setup.work)
                clients += self._next[run].prepare(state) or []
        if clients:
            self._engine.prepare(runs[0].setup.federation.local, clients)


def _local_models(work: Sequence[LocalWork], results: Sequence[LocalResult]) -> dict[int, Tensor]:
    """The models w_i⁺ `[P]` by client."""
    return {client.client: result.w for client, result in zip(work, results, strict=True)}
