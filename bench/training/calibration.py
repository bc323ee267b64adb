"""Which back end, threads and memory format are fastest for a run: measured once on a machine, then remembered.

Choices change numbers by rounding. So they are remembered, in the user's cache and in checkpoints, and depend on
nothing that may differ between two calls for the same run: not on the seeds that are asked for beside it, nor on how
busy the machine is the second time.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path

import torch

from bench.engine.federation import FederationState
from bench.engine.local import LocalResult, LocalWork
from bench.files.atomic import write_text
from bench.files.locks import locked
from bench.host.machine import machine
from bench.input.content import short_hash
from bench.input.errors import UserError
from bench.training.code_version import code_fingerprint
from bench.training.engine_choice import EngineChoice
from bench.training.run_setup import RunSetup

STEPS = 3
"""Local steps per client that are timed: the last ones, among which short mini-batches are."""
SEEDS = 3
"""A cohort is timed with so many times the clients of one seed, however many seeds are asked for."""
REPEATS = 3
SECONDS = 2.0
"""After so long no repetition of a measurement begins."""
HOPELESS = 2.0
"""How many times slower than the best a candidate must be not to be repeated."""
SMALL = 5e7
"""Largest P · height · width, a bound on the multiplications for one image, with which a cohort is tried on a CPU: of a
larger model it would gain nothing and take much memory. No time is asked: it depends on what else the machine does."""
GAIN = 1.1
"""How many times faster another back end or memory format must be than the plain loop, and all threads than one."""
TOLERANCE = {"fp32": 1e-3, "tf32": 0.05, "bf16": 0.2}
"""Largest difference to the loop's update after the timed steps, relative to that update, by precision."""


def choose_engine(setup: RunSetup, state: FederationState, log: Callable[..., None]) -> EngineChoice:
    """The choice for a run, from its state at the start; whether seeds go together is not part of it.

    The threads that torch has now are the most it may take. What the configuration fixes is not measured; a `UserError`
    if it fixes what the method or the model cannot do.
    """
    calibration, settings = _Calibration(setup, state), setup.config.engine
    if settings.backend == "graph" and setup.objective.device.type != "cuda":
        raise UserError("engine.backend graph needs an NVIDIA GPU (allowed here: auto, loop, cohort)")
    if not calibration.can_remember():
        layout = settings.layout == "channels_last"
        backend = "loop" if settings.backend == "auto" else settings.backend
        plain = EngineChoice(backend, threads=torch.get_num_threads(), channels_last=layout)
        log("engine: nothing is measured, since '%s' cannot be written", calibration.file.parent)
        return plain
    with locked(calibration.file):
        if (remembered := calibration.remembered()) is not None:
            log("engine: as measured before on this machine; without '%s' it is measured again", calibration.file)
            return remembered
        began = time.perf_counter()
        choice = calibration.measured()
        for tried, seconds in calibration.seconds.items():
            log("engine: %s takes %.2f ms per client and step", tried, 1000 * seconds)
        for tried, reason in calibration.impossible.items():
            log("engine: %s is not possible: %s", tried, reason)
        if settings.backend not in ("auto", choice.backend):
            reasons = "; ".join(calibration.impossible.values())
            raise UserError(f"engine.backend {settings.backend} is not possible here: {reasons} (allowed: auto, loop)")
        calibration.remember(choice)
    log("engine: measured in %.1f s", time.perf_counter() - began)
    return choice


def train_together(
    setups: Sequence[RunSetup], states: Sequence[FederationState], choice: EngineChoice, log: Callable[..., None]
) -> bool:
    """Whether runs that differ in their seeds are trained in one cohort: where that is asked for, or changes no bit.

    On a GPU company nearly always does change the last bits: there the same seeds must be asked for to have them again.
    """
    wanted = setups[0].config.engine.seeds if setups else "apart"
    if choice.backend == "loop" or len(setups) <= 1 or wanted == "apart":
        return False
    if wanted == "together" or setups[0].objective.device.type == "cuda":
        return True
    works = [_last_steps(setup, state) for setup, state in zip(setups, states, strict=True)]
    backend, local = choice.prepare([setup.objective for setup in setups]), setups[0].federation.local
    alone = backend.train(local, works[0])
    together = backend.train(local, [work for own in works for work in own])
    same = all(torch.equal(one.w, other.w) for one, other in zip(alone, together, strict=False))
    if not same:
        log("engine: the company of other seeds changes the last bits of a run, so they are trained one by one")
    return same


def _last_steps(setup: RunSetup, state: FederationState) -> list[LocalWork]:
    """The last local steps of each active client in the round that follows."""
    works = setup.work(state)
    return [replace(work, batches=work.batches[-STEPS:]) for work in works]


class _Calibration:
    """Times candidates on steps of a run's own first round."""

    def __init__(self, setup: RunSetup, state: FederationState) -> None:
        self.setup = setup
        self.state = state
        self.device = setup.objective.device
        self.precision = setup.objective.precision
        self.engine = setup.config.engine
        self.most_threads = torch.get_num_threads()
        self.seconds: dict[EngineChoice, float] = {}
        """Per client and step."""
        self.impossible: dict[EngineChoice, str] = {}
        self._plain: LocalResult | None = None

    def measured(self) -> EngineChoice:
        """The fastest candidate; the plain loop unless another is clearly faster."""
        best = plain = self._loop()
        for candidate in self._cohorts(plain):
            best = self._better(best, candidate)
        if self.engine.backend not in ("auto", "loop"):
            wanted = [tried for tried in self.seconds if tried.backend == self.engine.backend]
            best = min(wanted, key=self.seconds.__getitem__, default=plain)
        return best

    def _loop(self) -> EngineChoice:
        """The best loop: memory format first, with one thread, then threads."""
        best = EngineChoice(channels_last=self.engine.layout == "channels_last")
        self._time(best)
        if self.engine.layout == "auto":
            best = self._better(best, replace(best, channels_last=True))
        if self.most_threads > 1:
            best = self._better(best, replace(best, threads=self.most_threads))
        return best

    def _cohorts(self, loop: EngineChoice) -> Iterator[EngineChoice]:
        cuda, wanted = self.device.type == "cuda", self.engine.backend
        work = self.setup.objective.layout.total * prod(self.setup.dataset.image_shape[1:])
        if wanted == "auto" and not cuda and work > SMALL:
            return
        for name in ("cohort", "graph") if cuda or wanted == "graph" else ("cohort",):
            if wanted in ("auto", name):
                yield EngineChoice(name, threads=loop.threads if cuda else 1)

    def _better(self, best: EngineChoice, other: EngineChoice) -> EngineChoice:
        try:
            self._time(other)
        except Exception as error:  # whatever a method, a model or the memory cannot do: the plain loop can
            self.impossible[other] = str(error).partition("\n")[0]
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            return best
        return other if self.seconds[other] * GAIN < self.seconds[best] else best

    def _time(self, choice: EngineChoice) -> None:
        """Time a candidate; a ValueError if it does not compute what the loop computes."""
        backend, local = choice.prepare([self.setup.objective]), self.setup.federation.local
        works = _last_steps(self.setup, self.state)
        works = works[:1] if choice.backend == "loop" else works * (1 if self.engine.seeds == "apart" else SEEDS)
        steps = sum(len(work.batches) for work in works)
        slow = HOPELESS * steps * min(self.seconds.values(), default=float("inf"))
        times: list[float] = []
        began = time.perf_counter()
        while len(times) <= REPEATS and (len(times) < 2 or time.perf_counter() - began < SECONDS):
            start = time.perf_counter()
            results = backend.train(local, works)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            times.append(time.perf_counter() - start)
            if len(times) > 1 and times[-1] > slow:
                break
        if self._plain is None:
            self._plain = results[0]
        if (gap := self._gap(results[0], works[0].broadcast.model)) > TOLERANCE[self.precision]:
            raise ValueError(f"its update differs from the loop's by {gap:.1g} of its length")
        self.seconds[choice] = min(times[1:]) / steps

    def _gap(self, result: LocalResult, start: torch.Tensor) -> float:
        """How far an update is from the loop's, relative to that; 0 where that is not finite itself."""
        assert self._plain is not None
        length = (self._plain.w - start).norm()
        gap = float((result.w - self._plain.w).norm() / (length + torch.finfo(length.dtype).tiny))
        return gap if gap == gap else float("inf") if bool(length.isfinite()) else 0.0  # noqa: PLR0124 - NaN

    @cached_property
    def file(self) -> Path:
        """Where the choice is remembered; named by all that it depends on."""
        setup, config = self.setup, self.setup.config
        own = {"code": config.method.code, "hyperparameters": config.method.hyperparameters}
        about = {
            "code": code_fingerprint(),
            "machine": machine(self.device),
            "torch": torch.__version__,
            "threads": self.most_threads,
            "engine": config.engine.model_dump(mode="json", exclude={"client_memory"}),
            "model": config.model.model_dump(mode="json", exclude={"file", "module"}),
            "data": [*setup.dataset.image_shape, setup.dataset.classes],
            "batch_size": config.training.batch_size,
            "precision": self.precision,
            "participation": config.participation.model_dump(mode="json", exclude={"file"}),
            "clients": config.partition.clients,
            "method": own if config.method.code else config.method.recipe.components.loss.name,
        }
        key = short_hash(json.dumps(about, sort_keys=True))
        cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        return Path(cache) / "fedflat" / "calibration" / f"{key}.json"

    def remembered(self) -> EngineChoice | None:
        """What was measured before; None if nothing readable is there."""
        try:
            return EngineChoice.from_json(json.loads(self.file.read_text()))
        except (OSError, ValueError):
            return None

    def remember(self, choice: EngineChoice) -> None:
        """Keep it for the next time."""
        write_text(self.file, json.dumps(choice.as_json()) + "\n")

    def can_remember(self) -> bool:
        """Whether the cache can be written: a choice that cannot be made again would make runs differ."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # no home folder
            return False
        return os.access(self.file.parent, os.W_OK)
