"""The time of one round by part: forward and backward passes, and the other parts."""

import dataclasses
import functools
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedflat.bench.data.augmentation import Augment
from fedflat.bench.engine.local import LocalTraining, MiniBatchGradient
from fedflat.bench.methods.base import ClientRound
from tests.benchmarks.floor import synchronised
from tests.benchmarks.ours import VARIANTS, Ours
from tests.benchmarks.process import Process
from tests.benchmarks.report import Cell, Section, Spread, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.workload import Workload

PASSES = "forward and backward"
PARTS = (PASSES, "vectors of the local step", "gather and normalise", "augment", "server and all else")
ROUNDS = 3


class Clock:
    """Seconds by part; time in a nested part counts only for the inner part."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._parts = [PARTS[-1]]
        self._since = time.perf_counter()

    def stop(self) -> None:
        """Add the time until now to the current part."""
        now = synchronised(self._device)
        self.seconds[self._parts[-1]] += now - self._since
        self._since = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its time counts for the part."""

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            self.stop()
            self._parts.append(part)
            try:
                return function(*arguments, **named)
            finally:
                self.stop()
                self._parts.pop()

        return run


class Profile:
    """Rounds of the plain loop, with the time of each part."""

    def __init__(self, device: torch.device, workload: Workload, method: str) -> None:
        variant = next(iter(VARIANTS.values()))
        loop = dataclasses.replace(variant.choice(workload, device), backend="loop", together=False)
        self._ours = Ours(workload, method, device, variant, choice=loop)
        self._device = device

    def round(self, clients: int, images: int) -> dict[str, float]:
        """Seconds of each part in a round of the first clients, each with `images` images."""
        [federation] = self._ours.federations(images)
        clock, plain = Clock(self._device), federation.local
        fields = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        local = _Local(**{**fields, "augment": _Augment(clock, plain.augment)}, clock=clock)
        gradients = local.objective.gradients
        local.objective.gradients = clock.timed(PASSES, gradients)
        federation.local = local
        try:
            self._ours.round(range(clients), images)
            clock.stop()
        finally:
            federation.local = plain
            local.objective.gradients = gradients
        return {part: clock.seconds[part] for part in PARTS}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Local(LocalTraining):
    """Local training whose steps and batches are measured, also in the copies that clients get."""

    clock: Clock

    def step(self, w: Tensor, client: ClientRound, gradient: MiniBatchGradient) -> Tensor:
        return self.clock.timed(PARTS[1], super().step)(w, client, gradient)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.clock.timed(PARTS[2], super().batch)(index)


class _Augment(Augment):
    """An augmentation whose time is measured."""

    def __init__(self, clock: Clock, augment: Augment) -> None:
        super().__init__(augment.augmentations, augment.context, augment.crop)
        object.__setattr__(self, "draw", clock.timed(PARTS[3], augment.draw))
        object.__setattr__(self, "_call", clock.timed(PARTS[3], augment.__call__))

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def measure(setting: Setting) -> Section:
    """A round of the first model under each method, part by part."""
    sizes = setting.sizes.large[0]
    clients, images = sizes.round.clients, sizes.round.steps * sizes.batch
    workload = Workload(sizes.model, clients, images, sizes.batch)
    rows: list[tuple[Cell, ...]] = []
    with Process(setting.device, setting.all_cores, keeps_memory=True) as process:
        for method in sizes.methods:
            setting.progress(f"profile: {method}")
            process.build(method, "profile", workload=workload, method=method)
            turns = [process.ask(method, "round", clients=clients, images=images) for _ in range(ROUNDS + 1)][1:]
            total = Spread(tuple(sum(turn.values()) for turn in turns))
            parts = [Spread(tuple(turn[part] for turn in turns)) for part in PARTS]
            rows.append((method, total * 1e3, *((part / total * 100).median for part in parts)))
    about = (
        f"A round of {sizes.round} of {sizes.model}, batch {sizes.batch}, "
        f"{next(iter(VARIANTS))}, by the loop: the share of each part in percent. The first part is the arithmetic; "
        "the others are the overhead of the engine."
    )
    return Section("Profile of a round", [Table(about, ("method", "ms per round", *PARTS), rows)])
