"""How the engine computes a run: back end, threads, memory format of images, and whether seeds share a cohort."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from bench.engine.backends import BACKENDS
from bench.engine.local import Backend
from bench.engine.objective import Objective


@dataclass(frozen=True)
class EngineChoice:
    """How the engine computes a run; `together`: the clients of all seeds are trained in one cohort."""

    backend: str = "loop"
    together: bool = False
    threads: int = 1
    channels_last: bool = False

    @classmethod
    def from_json(cls, values: Any) -> "EngineChoice":
        """The choice that `as_json` described; a ValueError for anything else."""
        if not isinstance(values, dict) or values.keys() != asdict(cls()).keys() or values["backend"] not in BACKENDS:
            raise ValueError(f"not a choice of the engine: {values}")
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)

    def is_possible_on(self, device: torch.device) -> bool:
        """Whether the device has this back end: a run may be resumed on another device."""
        return self.backend != "graph" or device.type == "cuda"

    def prepare(self, objectives: Sequence[Objective]) -> Backend:
        """The back end; sets the threads of the process and the memory format of the objectives."""
        torch.set_num_threads(self.threads)
        for objective in objectives:
            objective.channels_last = self.channels_last
        return BACKENDS[self.backend]()

    def __str__(self) -> str:
        parts = [self.backend, "seeds together" * self.together, "channels-last" * self.channels_last]
        return ", ".join([*filter(None, parts), f"{self.threads} thread{'s' * (self.threads > 1)}"])
