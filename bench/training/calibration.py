"""The fastest back end, number of threads and memory format for training: measured once per machine, then cached.

The choice changes a run's numbers by rounding, so all calls for the same run must use the same choice. It is stored in
the user's cache and in checkpoints; it depends neither on the other requested seeds nor, apart from shared caches and
memory, on the machine's load: on a CPU, processor time is measured.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil, prod
from pathlib import Path
from typing import Any, Protocol

import torch

from fedflat.bench.engine.backends import BACKENDS, COHORTS, GRAPHS
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import Broadcast, LocalResult, LocalTraining, LocalWork
from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.files.atomic import write_text
from fedflat.bench.files.locks import locked
from fedflat.bench.files.own_folders import cache_folder
from fedflat.bench.host.machine import machine
from fedflat.bench.host.memory import available_memory, graph_bytes
from fedflat.bench.host.progress import Progress, silent
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import CannotBatchError
from fedflat.bench.training.code_version import code_fingerprint
from fedflat.bench.training.engine_choice import EngineChoice

STEPS = 3
"""Number of timed local steps per client: the last steps of a round, which include short mini-batches."""
SEEDS = 3
"""A cohort is timed with this number of copies of one seed's clients, each copy with a model of its own, whatever the
number of requested seeds."""
REPEATS = 3
SECONDS = 1.5
"""No repetition of a measurement starts after this time, warm-up excluded."""
HOPELESS = 2.0
"""A candidate that is slower than the best by this factor is not measured again; its warm-up does not count."""
SMALL = 5e7
"""Limit on P · height · width, a bound on the multiplications for one image. On a CPU, a cohort is tried only up to the
limit: above it, a cohort gains nothing and needs much memory. No time is measured for this rule, because times depend
on the machine's load."""
MEMORY = 0.25
"""Share of the free memory for clients that are trained side by side."""
VECTORS = 10
"""Vectors of the model's length that a client in training needs at most, besides autograd's graph."""
GAIN = 1.1
"""A candidate replaces the best one so far only if it is faster by this factor."""
TIMED = (REPEATS + 1) * STEPS
"""Largest number of local steps that a measurement trains for each client of a candidate."""
LOOPS = 3
"""Largest number of candidates that are loops."""
WORTH = 10
"""A simulation is measured only if it has this many times the local steps of the measurement."""
LEAST_SECONDS = 4.0
"""A simulation that the loop finishes in this time is left to the loop: the first cohort of a process takes a second
more, because torch imports its compiler."""
TOLERANCE = {"fp32": 1e-3, "tf32": 0.05, "bf16": 0.2}
"""Largest allowed distance of a candidate's update from the loop's, relative to the loop's, by precision."""


class Trainable(Protocol):
    """What calibration needs to know of a run or a simulation."""

    @property
    def federation(self) -> Federation:
        """The method, the model, and the clients' data."""
        ...

    @property
    def engine(self) -> EngineSettings:
        """What is measured, and what is fixed."""
        ...

    def work(self, state: FederationState) -> list[LocalWork]:
        """The local work of the next round's participants."""
        ...

    def calibration_key(self) -> Mapping[str, Any]:
        """What speed depends on besides machine, code and engine, as plain values: the same key, the same choice."""
        ...


def choose_engine(
    setup: Trainable,
    state: FederationState,
    log: Callable[..., None],
    progress: Progress = silent,
    *,
    steps: int | None = None,
) -> EngineChoice:
    """The engine's choice for a run, stored or measured from the run's initial state.

    `train_together` decides later whether seeds share a cohort. The choice has at most torch's current number of
    threads. Settings that the configuration fixes are not measured; a `UserError` if the method or the model does not
    allow the configured back end, of which only the update is compared with the loop's.

    `progress` receives a line before something is measured, because that takes long.

    `steps`: the local steps of all clients in a simulation; None for a run, because many runs share a choice. A
    simulation is measured only if it gains by that. It uses a stored choice only if that gives the loop's numbers:
    the key of a simulation does not contain the code of its model and its method.
    """
    if steps is not None and steps < WORTH * LOOPS * TIMED:
        return unmeasured(setup)
    calibration = _Calibration(setup, state, steps)
    if setup.engine.backend != "auto":
        choice = unmeasured(setup)
        if (problem := calibration.problem(choice)) is not None:
            raise UserError(
                f"engine.backend {choice.backend} is not possible here: {problem} (always possible: auto, loop)"
            )
        return choice
    if not calibration.can_store():
        log("engine: nothing is measured, because '%s' cannot be written", calibration.file.parent)
        return unmeasured(setup)
    with locked(calibration.file):
        if (stored := calibration.stored()) is not None and (steps is None or calibration.problem(stored) is None):
            log("engine: as measured earlier on this machine; delete '%s' to measure again", calibration.file)
            return stored
        progress("timing the engine's back ends, up to half a minute for large models; later runs use the result")
        began = time.perf_counter()
        choice = calibration.measured()
        for tried, seconds in calibration.seconds.items():
            log("engine: %s takes %.2f ms per client and step", tried, 1000 * seconds)
        for tried, reason in calibration.impossible.items():
            log("engine: %s is not possible: %s", tried, reason)
        calibration.store(choice)
    log("engine: measured in %.1f s", time.perf_counter() - began)
    return choice


def unmeasured(setup: Trainable) -> EngineChoice:
    """The choice if nothing is measured: the back end of the settings, or the loop, with all threads.

    A fixed back end is chosen as if it had been measured: on a CPU, a cohort has one thread.
    """
    _refuse_graph_without_gpu(setup)
    settings, threads = setup.engine, torch.get_num_threads()
    if settings.backend in COHORTS:
        on_cpu, im2col = setup.federation.objective.device.type == "cpu", settings.convolution == "im2col"
        return _cohort(settings.backend, settings, threads=1 if on_cpu else threads, im2col=im2col)
    backend = "loop" if settings.backend == "auto" else settings.backend
    return EngineChoice(backend, threads=threads, channels_last=settings.layout == "channels_last")


def _cohort(backend: str, settings: EngineSettings, *, threads: int, im2col: bool) -> EngineChoice:
    """A batched back end, with what the settings say of the rows."""
    by_row = settings.values == "by_row"
    return EngineChoice(backend, threads=threads, most_rows=settings.most_rows, im2col=im2col, by_row=by_row)


def is_small(local: LocalTraining) -> bool:
    """Whether the model does so little arithmetic that a CPU gains by cohorts, and does not gain by threads."""
    return local.objective.layout.total * prod(local.input_shape[1:]) <= SMALL


def _refuse_graph_without_gpu(setup: Trainable) -> None:
    if setup.engine.backend in GRAPHS and setup.federation.objective.device.type != "cuda":
        allowed = ", ".join(name for name in BACKENDS if name not in GRAPHS)
        raise UserError(f"engine.backend {setup.engine.backend} needs an NVIDIA GPU (allowed here: auto, {allowed})")


def train_together(
    setups: Sequence[Trainable], states: Sequence[FederationState], choice: EngineChoice, log: Callable[..., None]
) -> bool:
    """Whether runs of one cohort are trained in one call: if requested, or if it changes no bit.

    On a GPU, seeds are trained together although this nearly always changes the last bits: a run gives equal bits there
    only if the same set of seeds is trained.
    """
    wanted = setups[0].engine.seeds if setups else "apart"
    if choice.backend == "loop" or len(setups) <= 1 or wanted == "apart":
        return False
    if choice.backend == "parallel":
        return wanted == "together"
    if wanted == "together" or setups[0].federation.objective.device.type == "cuda":
        return True
    # One call belongs to one round: runs that were resumed in different rounds are tried as if all were in the first's.
    t = states[0].round
    works = [_in_round(setup.federation, _last_steps(setup, s), t) for setup, s in zip(setups, states, strict=True)]
    backend = choice.prepare([setup.federation.objective for setup in setups])
    try:
        together = backend.train(setups[0].federation.local, [work for own in works for work in own])
        alone = [
            result
            for setup, own in zip(setups, works, strict=True)
            for result in backend.train(setup.federation.local, own)
        ]
    except CannotBatchError:  # in this round the engine takes a simpler back end, as it would have without a kill
        return True
    same = all(one.has_bits_of(other) for one, other in zip(alone, together, strict=True))
    if not same:
        log("engine: training seeds together would change the last bits of a run, so they are trained one by one")
    return same


def _last_steps(setup: Trainable, state: FederationState) -> list[LocalWork]:
    """The last local steps of each participant of the next round."""
    works = setup.work(state)
    return [replace(work, batches=work.batches[-STEPS:]) for work in works]


def _in_round(federation: Federation, works: Sequence[LocalWork], t: int) -> list[LocalWork]:
    """The same works with what depends on the round as it is in round t."""
    lr, values = federation.learning_rate(t), federation.method.round_values(t, federation.rounds)
    return [replace(work, round=t, lr=lr, values=values) for work in works]


def _with_own_broadcast(works: Sequence[LocalWork]) -> list[LocalWork]:
    """The same works with a copy of what the server sends: runs of different seeds have different models."""
    given = works[0].broadcast
    copied = Broadcast(given.model.clone(), {name: v.clone() for name, v in given.vectors.items()})
    return [replace(work, broadcast=copied) for work in works]


class _Calibration:
    """Times candidates on local steps of the run's first round."""

    def __init__(self, setup: Trainable, state: FederationState, steps: int | None = None) -> None:
        self.setup = setup
        self.state = state
        self.steps = steps
        self.local: LocalTraining = setup.federation.local
        self.objective = self.local.objective
        self.device = self.objective.device
        self.precision = self.objective.precision
        self.engine = setup.engine
        self.most_threads = torch.get_num_threads()
        self.seconds: dict[EngineChoice, float] = {}
        """Seconds per client and step."""
        self.impossible: dict[EngineChoice, str] = {}
        self._loop_result: LocalResult | None = None

    def measured(self) -> EngineChoice:
        """The fastest candidate; the loop unless another one is clearly faster."""
        best = plain = self._loop()
        if self._is_short(self.seconds[best]):
            return best
        for candidate in (*self._parallel(plain), *self._cohorts(plain)):
            best = self._better(best, candidate)
        return best

    def _is_short(self, seconds: float) -> bool:
        """Whether a simulation, whose loop takes these seconds per step, gains too little by other back ends."""
        if self.steps is None:
            return False
        side_by_side = 2 * len(self.setup.work(self.state)) * TIMED  # in parallel, and in a cohort
        return self.steps < WORTH * side_by_side or self.steps * seconds < LEAST_SECONDS

    def _loop(self) -> EngineChoice:
        """The best loop: first the memory format is chosen, with one thread, then the number of threads."""
        best = EngineChoice(channels_last=self.engine.layout == "channels_last")
        self._time(best)
        if self.engine.layout == "auto":
            best = self._better(best, replace(best, channels_last=True))
        if self.most_threads > 1:
            best = self._better(best, replace(best, threads=self.most_threads))
        return best

    def _parallel(self, loop: EngineChoice) -> Iterator[EngineChoice]:
        """As many clients side by side as there are active clients, threads, and clients that fit into the memory."""
        if self.device.type != "cpu":
            return
        works, objective = self.setup.work(self.state), self.objective
        x, y = self.local.data.batch(works[0].batches[0])
        graph = graph_bytes(lambda: objective.gradient(self.state.w, x, y))
        client = 2 * graph + VECTORS * self.state.w.nbytes
        fit = int(MEMORY * available_memory() // client)
        clients = max(1, min(self.most_threads, len(works), fit))
        choice = replace(loop, backend="parallel", threads=clients)
        if clients > 1:
            yield choice
        else:
            self.impossible[choice] = "it needs two threads, and in each round two clients that fit into the memory"

    def _cohorts(self, loop: EngineChoice) -> Iterator[EngineChoice]:
        cuda = self.device.type == "cuda"
        if not cuda and not is_small(self.local):
            return
        for name in COHORTS if cuda else ("cohort",):
            for im2col in self._forms_of_convolutions():
                yield _cohort(name, self.engine, threads=loop.threads if cuda else 1, im2col=im2col)

    def _forms_of_convolutions(self) -> tuple[bool, ...]:
        """Whether convolutions are tried as matrix products; on a CPU only if requested."""
        both = self.device.type == "cuda" and self.objective.has_convolutions
        return {"auto": (False, True) if both else (False,), "grouped": (False,), "im2col": (True,)}[
            self.engine.convolution
        ]

    def _better(self, best: EngineChoice, other: EngineChoice) -> EngineChoice:
        try:
            self._time(other)
        except Exception as error:  # whatever fails for a method, a model or lack of memory: the loop works
            self.impossible[other] = str(error).partition("\n")[0]
            lacks_memory = isinstance(error, torch.OutOfMemoryError)
        else:
            return other if self.seconds[other] * GAIN < self.seconds[best] else best
        # Not before the error, which holds the candidate's tensors, is gone:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        fewer = other.smaller(len(self._works(other))) if lacks_memory else None
        return best if fewer is None or fewer.backend == "loop" else self._better(best, fewer)

    def _time(self, choice: EngineChoice) -> None:
        """Time a candidate; a ValueError if its update differs from the loop's."""
        backend, local = choice.prepare([self.objective]), self.local
        works = self._works(choice)
        steps = sum(len(work.batches) for work in works)
        slow = HOPELESS * steps * min(self.seconds.values(), default=float("inf"))
        for _ in range(backend.warm_up):  # not timed: libraries are initialised, a graph is captured
            results = backend.train(local, works)
        times: list[float] = []
        while not times or (len(times) < REPEATS and sum(times) < SECONDS and times[-1] <= slow):
            start = self._now(choice)
            results = backend.train(local, works)
            times.append(self._now(choice) - start)
        if self._loop_result is None:
            self._loop_result = results[0]
        if (difference := self._difference(results[0], works)) is not None:
            raise ValueError(difference)
        self.seconds[choice] = min(times) / steps * self._idle(choice)

    def _idle(self, choice: EngineChoice) -> float:
        """How much longer a round takes because threads have no client left: 4/3 for 3 clients on 2 threads."""
        clients = len(self.setup.work(self.state))
        return 1.0 if choice.backend != "parallel" else ceil(clients / choice.threads) * choice.threads / clients

    def _works(self, choice: EngineChoice) -> list[LocalWork]:
        """The local steps with which a candidate is timed."""
        works = _last_steps(self.setup, self.state)
        if choice.backend in ("loop", "parallel"):
            return works[: 1 if choice.backend == "loop" else choice.threads]
        if self.engine.seeds == "apart":
            return works
        return [own for _ in range(SEEDS) for own in _with_own_broadcast(works)]

    def problem(self, choice: EngineChoice) -> str | None:
        """Why a choice is not possible, without timing it; None if its update is the loop's."""
        if choice.backend == "loop":
            return None
        plain = EngineChoice()
        [self._loop_result] = plain.prepare([self.objective]).train(self.local, self._works(plain))
        try:
            works = self._works(choice)
            result = choice.prepare([self.objective]).train(self.local, works)[0]
        except Exception as error:  # as in `_better`
            return str(error).partition("\n")[0]
        return self._difference(result, works)

    def _now(self, choice: EngineChoice) -> float:
        """Seconds: on a GPU the time when it has finished its work, else processor time, so that other programs do not
        count. Threads of the parallel back end, which all have a client here, share theirs; the first one of other back
        ends does a part of all work itself, and waits actively for the rest."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return time.perf_counter()
        return time.process_time() / choice.threads if choice.backend == "parallel" else time.thread_time()

    def _difference(self, result: LocalResult, works: Sequence[LocalWork]) -> str | None:
        """Says that the first client's update is not the loop's; None if it is."""
        gap = self._gap(result, works[0].broadcast.model)
        right = gap <= TOLERANCE[self.precision]
        return None if right else f"its update differs from the loop's by {gap:.1g} of its length"

    def _gap(self, result: LocalResult, start: torch.Tensor) -> float:
        """The distance of an update from the loop's, relative to the loop's length; 0 if the loop's is not finite."""
        assert self._loop_result is not None
        length = (self._loop_result.w - start).norm()
        gap = float((result.w - self._loop_result.w).norm() / (length + torch.finfo(length.dtype).tiny))
        return gap if gap == gap else float("inf") if bool(length.isfinite()) else 0.0  # noqa: PLR0124 - NaN

    @cached_property
    def file(self) -> Path:
        """The file of the stored choice; its name is a hash of everything that the choice depends on."""
        about = {
            "code": code_fingerprint(),
            "machine": machine(self.device),
            "torch": torch.__version__,
            "threads": self.most_threads,
            "steps": self.steps,
            "engine": self.engine.model_dump(mode="json", exclude={"client_memory", "checkpoint_seconds"}),
            "precision": self.precision,
            **self.setup.calibration_key(),
        }
        key = short_hash(json.dumps(about, sort_keys=True))
        return cache_folder("calibration") / f"{key}.json"

    def stored(self) -> EngineChoice | None:
        """The stored choice; None if there is none, or if it is unreadable."""
        try:
            return EngineChoice.from_json(json.loads(self.file.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):  # RecursionError: many brackets
            return None

    def store(self, choice: EngineChoice) -> None:
        """Store the choice for later runs."""
        write_text(self.file, json.dumps(choice.as_json()) + "\n")

    def can_store(self) -> bool:
        """Whether the cache can be written: without it, two calls for one run could choose differently."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # no home folder
            return False
        return os.access(self.file.parent, os.W_OK)
