"""The jobs that a contender's process can build and time."""

import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
import torch

from fedflat.bench.engine.participation import Participation, active_clients
from fedflat.bench.host.machine import processor
from fedflat.bench.host.threads import available_cores
from fedflat.bench.training.engine_choice import EngineChoice
from tests.benchmarks import machine
from tests.benchmarks.floor import Floor, Rates, precisions, synchronised
from tests.benchmarks.hessian import Eigenvalues
from tests.benchmarks.landscape import Points
from tests.benchmarks.ours import VARIANTS, Ours
from tests.benchmarks.passes import vectors_per_step
from tests.benchmarks.plain import Plain
from tests.benchmarks.profile import Profile
from tests.benchmarks.workload import Workload


class Rounds(Protocol):
    """A federated run that can play rounds."""

    def round(self, active: Sequence[int], images: int) -> float:
        """Train one round and return its mean local loss."""
        ...


class Timed:
    """Times rounds of the plain reference or of the engine."""

    def __init__(self, rounds: Rounds, device: torch.device) -> None:
        self._rounds = rounds
        self._device = device

    def seconds(self, clients: int, images: int) -> float:
        """Seconds of a round of the first clients, each with `images` images; an error if the run has diverged."""
        began = synchronised(self._device)
        loss = self._rounds.round(range(clients), images)
        elapsed = synchronised(self._device) - began
        if not math.isfinite(loss):
            raise ArithmeticError("the run diverged: its time means nothing")
        return elapsed

    def peak_memory_mib(self) -> float:
        """Peak memory of this process; on a GPU, of its tensors there."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**20
        return machine.peak_memory_mib()


class Registered:
    """A federation with many registered clients; each round samples different ones."""

    def __init__(self, device: torch.device, workload: Workload, method: str, active: int) -> None:
        self._workload = workload
        self._participation = Participation(active=active)
        self._device = device
        variant = next(iter(VARIANTS.values()))
        choice = variant.choice(workload, device)
        before = synchronised(device)
        self._ours = Ours(workload, method, device, variant, choice=choice)
        self._set_up = synchronised(device) - before
        self._took_part: set[int] = set()
        self._round = 0

    def set_up(self) -> dict[str, float]:
        """Seconds of the set-up, and the model's size in MiB."""
        return {"seconds": self._set_up, "model_mib": 4 * self._ours.parameters / 2**20}

    def play(self) -> dict[str, float]:
        """Train a round: its seconds including sampling, and the distinct clients and the memory after it."""
        began = synchronised(self._device)
        active = active_clients(self._participation, self._workload.clients, 0, self._round)
        self._ours.round(active, self._workload.images)
        elapsed = synchronised(self._device) - began
        self._round += 1
        self._took_part.update(active)
        return {
            "seconds": elapsed,
            "participants": len(self._took_part),
            "memory_mib": machine.resident_memory_mib() + self._on_gpu_mib(),
        }

    def _on_gpu_mib(self) -> float:
        return torch.cuda.memory_allocated(self._device) / 2**20 if self._device.type == "cuda" else 0.0


class About:
    """The machine and the libraries."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def lines(self) -> dict[str, str]:
        """The facts at the head of the report."""
        facts = {
            "processor": f"{processor()}, {available_cores()} cores"
            f" ({', '.join(machine.instruction_sets()) or 'instruction sets unknown'})",
        }
        if self._device.type == "cuda":
            properties = torch.cuda.get_device_properties(self._device)
            facts["GPU"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
        facts["system"] = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver()) or 'no glibc'}"
        facts["versions"] = f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
        facts["FedFlat"] = version("fedflat")
        facts["precisions"] = ", ".join(precisions(self._device))
        return facts

    def parameters(self, model: str) -> int:
        """P of a model."""
        return sum(p.numel() for p in Workload(model, 1, 1, 1).module(0).parameters())

    def vectors_per_step(self, model: str, method: str) -> tuple[float, float]:
        """Vectors that a local step reads and writes."""
        return vectors_per_step(Workload(model, 1, images=6, batch=2, augmented=False), method, self._device)


def build(kind: str, device: torch.device, given: Mapping[str, Any]) -> Any:
    """Build a job by its name; `given` are its arguments from JSON."""
    fields = {**given, "workload": Workload(**given["workload"])} if "workload" in given else dict(given)
    match kind:
        case "plain":
            return Timed(Plain(device=device, **fields), device)
        case "ours":
            variant = VARIANTS[fields.pop("variant", next(iter(VARIANTS)))]
            if "choice" in fields:
                fields["choice"] = EngineChoice.from_json(fields["choice"])
            return Timed(Ours(device=device, variant=variant, **fields), device)
    jobs = {
        "floor": Floor,
        "rates": Rates,
        "registered": Registered,
        "profile": Profile,
        "about": About,
        "points": Points,
        "hessian": Eigenvalues,
    }
    return jobs[kind](device=device, **fields)
