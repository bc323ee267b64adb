"""Trains runs of a cell: one round of all of them at a time, as the engine's choice says."""

import math
import time
from collections.abc import Iterator, Sequence

from torch import Tensor

from fedflat.bench.engine.backends.prepared import Prepared
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.engine.local import LocalResult, LocalWork
from fedflat.bench.training.engine import Engine
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.training_run import RoundResult, TrainingRun

PREPARING = ("cuda",)
"""Devices that compute a round while the host prepares the next one. On a CPU, both would take turns: nothing would be
gained, and the next round's states would need memory earlier."""


def due_runs(runs: Sequence[TrainingRun], last: float = math.inf) -> Iterator[list[TrainingRun]]:
    """The runs that train their next round together, for each round until all have ended or finished round `last`.

    Resumed runs that are behind catch up first.
    """
    while due := [run for run in runs if not run.ended and run.state.round < last]:
        earliest = min(run.state.round for run in due)
        yield [run for run in due if run.state.round == earliest]


class CellTrainer:
    """Trains runs that can share a cohort."""

    def __init__(self, runs: Sequence[TrainingRun], choice: EngineChoice) -> None:
        self.runs = runs
        self._next: dict[TrainingRun, Prepared[FederationState, list[LocalWork]]] = {}
        objectives, requested = [run.setup.objective for run in runs], runs[0].config.engine.backend
        self._engine = Engine(objectives, choice, requested, self._announce)

    def _announce(self, news: str | EngineChoice) -> None:
        for run in self.runs:
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
