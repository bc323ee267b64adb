"""The engine as a contender: the one place where the benchmark builds a federation of this project."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedflat.bench.data.augmentation import PRESETS, Augment, Context
from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.objective import Objective
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.methods.catalog import recipe
from fedflat.bench.methods.compose import combine
from fedflat.bench.models.network import has_buffers
from fedflat.bench.numerics.precision import Precision, prepare_precision
from fedflat.bench.training.engine_choice import EngineChoice
from tests.benchmarks.workload import CLASSES, HYPERPARAMETERS, SETTINGS, Workload
from tests.problems import joint_round


@dataclass(frozen=True)
class Variant:
    """A way to run the engine. `precision` names the floor with which it is compared."""

    name: str
    precision: Precision

    def choice(self, workload: Workload, device: torch.device) -> EngineChoice:
        """Calibration's choice for such work: graphs on a GPU, cohorts of small models, the loop for large ones."""
        threads = torch.get_num_threads()
        if device.type == "cuda":
            return EngineChoice("graph", together=True, threads=threads)
        if workload.on_digits:
            return EngineChoice("cohort", together=True, threads=threads)
        return EngineChoice("loop", threads=threads, channels_last=self._gains_by_channels_last(workload))

    def _gains_by_channels_last(self, workload: Workload) -> bool:
        """Whether gradients are faster with images in that memory format."""
        objective = _objective(workload, 0, self.precision)
        w, (x, y) = objective.initial(), workload.batch_of(workload.batch)
        turns, passes = (1, 1) if workload.high_resolution else (4, 3)
        objective.gradient(w, x, y)
        fastest = {}
        for objective.channels_last in (False, True) * turns:
            began = time.perf_counter()
            for _ in range(passes):
                objective.gradient(w, x, y)
            seconds = time.perf_counter() - began
            fastest[objective.channels_last] = min(seconds, fastest.get(objective.channels_last, seconds))
        return fastest[True] < fastest[False]


VARIANTS = {variant.name: variant for variant in (Variant("FedFlat fp32", "fp32"), Variant("FedFlat bf16", "bf16"))}
"""By name; the first is the default."""


def _objective(workload: Workload, seed: int, precision: Precision, device: torch.device | None = None) -> Objective:
    module = workload.module(seed).to(device)
    return Objective(module, precision, buffer_mode="average" if has_buffers(module) else None)


class Ours:
    """Federations of one workload and method, one per seed."""

    def __init__(
        self,
        workload: Workload,
        method: str,
        device: torch.device,
        variant: Variant,
        seeds: int = 1,
        choice: EngineChoice | None = None,
    ) -> None:
        device = prepare_device(str(device), torch.get_num_threads())  # as the project's commands do
        prepare_precision(variant.precision, device)
        self.workload = workload
        data = workload.data()
        maps = None if data.maps is None else data.maps.to(device)
        parts = (part.to(device) for part in (data.images, data.labels, data.shift, data.factor))
        self._data = DeviceData(*parts, maps=maps)
        loss = {"loss": "hard_pixels"} if workload.per_pixel else {}
        self._method = combine(recipe(method), loss).build(HYPERPARAMETERS[method])
        self._objectives = [_objective(workload, seed, variant.precision, device) for seed in range(seeds)]
        self._backend = (choice or variant.choice(workload, device)).prepare(self._objectives)
        self._federations: dict[int, list[Federation]] = {}
        self.states: list[FederationState] = [
            federation.start(objective.initial())
            for federation, objective in zip(self.federations(workload.images), self._objectives, strict=True)
        ]

    @property
    def parameters(self) -> int:
        """P."""
        return self._objectives[0].layout.total

    def round(self, active: Sequence[int], images: int) -> float:
        """One round of every seed, with `images` images per active client; the mean local loss of the first seed."""
        played = joint_round(self.federations(images), self.states, [active] * len(self.states), self._backend)
        self.states = [state for state, _ in played]
        return played[0][1]["local_loss"]

    def federations(self, images: int) -> list[Federation]:
        """The federations in which each client has `images` images."""
        if images not in self._federations:
            split = self.workload.split(images)
            self._federations[images] = [
                Federation(
                    self._method,
                    objective,
                    self._data,
                    EpochBatches(split, self.workload.epochs, self.workload.batch, seed),
                    [images] * self.workload.clients,
                    SETTINGS,
                    seed,
                    self._augment() if self.workload.augmented else None,
                )
                for seed, objective in enumerate(self._objectives)
            ]
        return self._federations[images]

    def _augment(self) -> Augment:
        shape = tuple(self._data.images.shape[1:])
        context = Context(CLASSES, shape, black=(0 - self._data.shift) * self._data.factor)
        return Augment(PRESETS["fl_simulator"], context)
