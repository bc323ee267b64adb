"""Which back end, threads and memory format are fastest for a run: measured once on a machine, then remembered.

Choices change numbers by rounding. So they are remembered, in the user's cache and in checkpoints: the same run makes
the same choice again on the same machine, however busy it is.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from bench.atomic import write_text
from bench.engine.backends import BACKENDS
from bench.engine.federation import FederationState
from bench.engine.local import Backend, LocalResult, LocalWork
from bench.engine.objective import Objective
from bench.errors import UserError
from bench.machine import machine
from bench.methods.base import CannotBatchError
from bench.parts import Bench

STEPS = 3
"""Local steps per client that are timed: the last ones, among which short mini-batches are."""
REPEATS = 3
SECONDS = 2.0
"""After so long no repetition of a measurement begins."""
HOPELESS = 2.0
"""How many times slower than the best a candidate must be not to be repeated."""
SMALL_STEP = 0.02
"""Seconds of a client's step above which no cohort is tried on a CPU: it would gain nothing and take much memory."""
GAIN = 1.1
"""How many times faster another back end or memory format must be than the plain loop, and all threads than one."""
TOLERANCE = {"fp32": 1e-3, "tf32": 0.05, "bf16": 0.2}
"""Largest difference to the loop's update after the timed steps, relative to that update, by precision."""


@dataclass(frozen=True)
class Choice:
    """How the engine computes: `together` puts the clients of all seeds into one cohort."""

    backend: str = "loop"
    together: bool = False
    threads: int = 1
    channels_last: bool = False

    def as_json(self) -> dict[str, Any]:
        """Plain values, from which `Choice(**values)` makes it again."""
        return asdict(self)

    def prepare(self, objectives: Sequence[Objective]) -> Backend:
        """Set the process and the objectives up, and make the back end."""
        torch.set_num_threads(self.threads)
        for objective in objectives:
            objective.channels_last = self.channels_last
        return BACKENDS[self.backend]()

    def __str__(self) -> str:
        parts = [self.backend, "seeds together" * self.together, "channels-last" * self.channels_last]
        return ", ".join([*filter(None, parts), f"{self.threads} thread{'s' * (self.threads > 1)}"])


def choose(benches: Sequence[Bench], states: Sequence[FederationState], log: Callable[..., None]) -> Choice:
    """The choice for runs that differ in their seeds, from their states at the start.

    The threads that torch has now are the most it may take. What the configuration fixes is not measured; a `UserError`
    if it fixes what the method or the model cannot do.
    """
    calibration = _Calibration(benches, states)
    settings = benches[0].config.engine
    if (remembered := calibration.remembered()) is not None:
        log("engine: %s (measured before on this machine)", remembered)
        return remembered
    if not calibration.can_remember():
        plain = Choice(backend="loop" if settings.backend == "auto" else settings.backend)
        log("engine: %s; nothing is measured, since '%s' cannot be written", plain, calibration.file.parent)
        return plain
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
    log("engine: %s (measured in %.1f s)", choice, time.perf_counter() - began)
    return choice


class _Calibration:
    """Times candidates on steps of the runs' own first round."""

    def __init__(self, benches: Sequence[Bench], states: Sequence[FederationState]) -> None:
        self.benches = benches
        self.states = states
        self.device = benches[0].objective.device
        self.precision = benches[0].objective.precision
        self.engine = benches[0].config.engine
        self.most_threads = torch.get_num_threads()
        self.seconds: dict[Choice, float] = {}
        """Per client and step."""
        self.impossible: dict[Choice, str] = {}
        self._plain: LocalResult | None = None

    def measured(self) -> Choice:
        """The fastest candidate; the plain loop unless another is clearly faster."""
        best = self._loop()
        plain = best
        for candidate in self._cohorts(best):
            if self._try(candidate) and self._gains(candidate, best):
                best = candidate
        if self.engine.backend not in ("auto", "loop"):
            wanted = [tried for tried in self.seconds if tried.backend == self.engine.backend]
            best = min(wanted, key=self.seconds.__getitem__, default=plain)
        return best

    def _loop(self) -> Choice:
        """The best loop: memory format first, with one thread, then threads."""
        best = Choice(channels_last=self.engine.layout == "channels_last")
        self._try(best)
        if self.engine.layout == "auto" and len(self.benches[0].dataset.image_shape) == 3:
            best = self._better(best, replace(best, channels_last=True))
        if self.most_threads > 1:
            best = self._better(best, replace(best, threads=self.most_threads))
        return best

    def _cohorts(self, loop: Choice) -> Iterator[Choice]:
        cuda, engine = self.device.type == "cuda", self.engine
        names = ["cohort", "graph"] if cuda or engine.backend == "graph" else ["cohort"]
        names = [name for name in names if engine.backend in ("auto", name)]
        if engine.backend == "auto" and not cuda and self.seconds[loop] > SMALL_STEP:
            return
        for name in names:
            for together in (False, True):
                if together and (len(self.benches) == 1 or engine.seeds == "apart"):
                    continue
                if not together and engine.seeds == "together" and len(self.benches) > 1:
                    continue
                yield Choice(name, together, 1 if not cuda else loop.threads, channels_last=False)

    def _better(self, best: Choice, other: Choice) -> Choice:
        return other if self._try(other) and self._gains(other, best) else best

    def _gains(self, other: Choice, best: Choice) -> bool:
        return self.seconds[other] * GAIN < self.seconds[best]

    def _try(self, choice: Choice) -> bool:
        """Time a candidate; False if it is not possible, or does not compute what the loop computes."""
        count = len(self.benches) if choice.together else 1
        backend = choice.prepare([bench.objective for bench in self.benches])
        works: list[LocalWork] = []
        for bench, state in list(zip(self.benches, self.states, strict=True))[:count]:
            first = bench.federation.work(state, bench.active(state))
            works += [replace(work, plan=work.plan[-STEPS:]) for work in first]
        if choice.backend == "loop":
            works = works[:1]
        steps = sum(len(work.plan) for work in works)
        slow = HOPELESS * steps * min(self.seconds.values(), default=float("inf"))
        times: list[float] = []
        began = time.perf_counter()
        try:
            while len(times) <= REPEATS and (len(times) < 2 or time.perf_counter() - began < SECONDS):
                start = time.perf_counter()
                results = backend.train(self.benches[0].federation.local, works)
                self._wait()
                times.append(time.perf_counter() - start)
                if len(times) > 1 and times[-1] > slow:
                    break
        except CannotBatchError as error:
            self.impossible[choice] = str(error)
            return False
        if choice.together and self.engine.seeds == "auto" and self._company_matters(backend, works[:1], results[0]):
            self.impossible[choice] = "the company of other seeds changes the last bits of a run"
            return False
        if self._plain is None:
            self._plain = results[0]
        elif (gap := self._gap(results[0], works[0].sent.model)) > TOLERANCE[self.precision]:
            self.impossible[choice] = f"its update differs from the loop's by {gap:.1g} of its length"
            return False
        self.seconds[choice] = min(times[1:]) / steps
        return True

    def _company_matters(self, backend: Backend, alone: Sequence[LocalWork], result: LocalResult) -> bool:
        """Whether a client has other bits in a cohort than alone, on a CPU.

        A GPU's kernels nearly always do: there the same seeds must be asked for to have the same bits.
        """
        if self.device.type != "cpu":
            return False
        [other] = backend.train(self.benches[0].federation.local, alone)
        return not torch.equal(other.w, result.w)

    def _gap(self, result: LocalResult, start: torch.Tensor) -> float:
        """How far an update is from the loop's; 0 where that is not finite."""
        assert self._plain is not None
        gap = (result.w - self._plain.w).norm() / (self._plain.w - start).norm()
        return float(gap.nan_to_num(0.0, 0.0, 0.0))

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @cached_property
    def file(self) -> Path:
        """Where the choice is remembered; named by all that it depends on."""
        bench, config = self.benches[0], self.benches[0].config
        about = {
            "machine": machine(self.device),
            "torch": torch.__version__,
            "threads": self.most_threads,
            "engine": config.engine.model_dump(mode="json", exclude={"client_memory"}),
            "model": config.model.model_dump(mode="json", exclude={"file", "module"}),
            "data": [*bench.dataset.image_shape, bench.dataset.classes],
            "batch_size": config.training.batch_size,
            "precision": self.precision,
            "active": len(bench.active(self.states[0])),
            "seeds": len(self.benches),
            "method": config.method.code or config.method.recipe.parts.loss.name,
        }
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "fedflat" / "calibration" / f"{key}.json"

    def remembered(self) -> Choice | None:
        """What was measured before; None if nothing readable is there."""
        try:
            return Choice(**json.loads(self.file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def remember(self, choice: Choice) -> None:
        """Keep it for the next time."""
        write_text(self.file, json.dumps(choice.as_json()) + "\n")

    def can_remember(self) -> bool:
        """Whether the cache can be written: a choice that cannot be made again would make runs differ."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return False
        return os.access(self.file.parent, os.W_OK)
