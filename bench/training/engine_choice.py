"""How the engine computes a run: back end, threads, memory format of images, and whether seeds share a cohort."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from fedflat.bench.engine.backends import BACKENDS, COHORTS, GRAPHS
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.groups import Groups
from fedflat.bench.engine.local import Backend
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.input.arguments import checked_fields
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError, unknown


@checked_fields
@dataclass(frozen=True)
class EngineChoice:
    """How the engine computes a run.

    `together`: the clients of all seeds are trained in one cohort. `most_rows`: the largest number of clients that are
    computed at once, if memory did not suffice for all. `im2col`: convolutions of few channels are matrix products.
    `by_row`: each client of a cohort has hyper-parameters of its own.
    """

    backend: str = "loop"
    together: bool = False
    threads: Count = 1
    channels_last: bool = False
    most_rows: Count | None = None
    im2col: bool = False
    by_row: bool = False

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise unknown("back end", self.backend, BACKENDS)

    @classmethod
    def from_json(cls, values: Any) -> "EngineChoice":
        """The choice that `as_json` described; a ValueError for anything else."""
        fields = asdict(cls()).keys()
        later = {"most_rows", "im2col", "by_row"}  # checkpoints of earlier versions do not have them
        is_choice = isinstance(values, dict) and {*values, *later} == fields
        if not is_choice or not isinstance(values["backend"], str) or values["backend"] not in BACKENDS:
            raise ValueError(f"not a choice of the engine: {values}")
        try:
            choice = cls(**values)
        except UserError:
            raise ValueError(f"not a choice of the engine: {values}") from None
        return choice

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)

    def is_possible_on(self, device: torch.device) -> bool:
        """Whether the device has this back end: a run may be resumed on another device."""
        return self.backend not in GRAPHS or device.type == "cuda"

    def agrees_with(self, settings: EngineSettings) -> bool:
        """Whether the choice has the values that are fixed in an experiment or on the command line."""
        return self.difference(settings) is None

    def difference(self, settings: EngineSettings) -> str | None:
        """The first fixed value that the choice does not have, in words; None if it has all."""
        batched = self.backend in COHORTS
        layout = None if batched else "channels_last" if self.channels_last else "contiguous"
        convolution = None if not batched else "im2col" if self.im2col else "grouped"
        values = None if not batched else "by_row" if self.by_row else "fixed"
        own = {"backend": self.backend, "layout": layout, "convolution": convolution, "values": values}
        for name, actual in own.items():
            fixed = getattr(settings, name)
            if actual is not None and fixed not in ("auto", actual):
                return f"engine.{name} = {actual}, not {fixed}"
        return None

    def prepare(self, objectives: Sequence[Objective]) -> Backend:
        """The back end; sets the threads of the process and the memory format of the objectives."""
        torch.set_num_threads(self.threads)
        for objective in objectives:
            objective.channels_last, objective.im2col = self.channels_last, self.im2col
        backend = BACKENDS[self.backend]()
        if isinstance(backend, Cohort):
            backend.by_row = self.by_row
        return backend if self.most_rows is None else Groups(backend, self.most_rows)

    def simpler(self) -> "EngineChoice | None":
        """The choice for rounds that this back end cannot compute: a cohort instead of graphs, then the loop."""
        if self.backend == "loop":
            return None
        return replace(self, backend="cohort") if self.backend in GRAPHS else self._loop()

    def smaller(self, rows: int) -> "EngineChoice | None":
        """The choice that needs less memory, if the memory does not suffice for this number of clients at once.

        Half as many clients; the loop instead of a single one; None instead of the loop.
        """
        if self.backend == "loop":
            return None
        half = -(-min(rows, self.most_rows or rows) // 2)
        return replace(self, most_rows=half) if half > 1 else self._loop()

    def _loop(self) -> "EngineChoice":
        return replace(self, backend="loop", most_rows=None, im2col=False, by_row=False)

    def __str__(self) -> str:
        parts = [
            self.backend,
            "seeds together" * self.together,
            "channels-last" * self.channels_last,
            "im2col" * self.im2col,
            "values by row" * self.by_row,
        ]
        if self.most_rows is not None:
            parts.append(f"at most {self.most_rows} clients at once")
        return ", ".join([*filter(None, parts), f"{self.threads} thread{'s' * (self.threads > 1)}"])
