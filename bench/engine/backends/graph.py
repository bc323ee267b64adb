"""A cohort's whole round as one CUDA graph: every kernel of every local step is launched by one call.

The first round of a shape runs as it is, which warms libraries up; the second is captured, and later ones of the same
shape are replayed: new inputs are copied over the old ones, and what comes out is copied before the next replay.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bench.engine.backends.cohort import Cohort, CohortRound
from bench.engine.backends.inputs import RoundInputs, RoundShape
from bench.engine.backends.rows import Rows, apply, structure
from bench.engine.local import LocalResult, LocalTraining, LocalWork, Probe
from bench.methods.base import CannotBatchError

Key = tuple[LocalTraining, RoundShape, tuple[Any, ...]]
"""What two rounds must share for one's graph to compute the other."""

KEPT = 4
"""Graphs in memory at once; each holds the activations of a local step."""


@dataclass(frozen=True)
class _Captured:
    """A graph, and the tensors that it reads and writes."""

    computation: CohortRound
    graph: torch.cuda.CUDAGraph
    inputs: Rows
    ends: Rows

    def replay(self, inputs: RoundInputs) -> list[LocalResult]:
        """The results for other inputs of the same shape."""
        apply(lambda old, new: old.copy_(new, non_blocking=True), self.inputs, inputs.tensors())
        self.graph.replay()
        return self.computation.results(apply(torch.clone, self.ends))


class Graph(Cohort):
    """Rounds whose shapes repeat: equal client sizes and a fixed number of active clients make all rounds alike."""

    def __init__(self) -> None:
        self._seen: Counter[Key] = Counter()
        self._captured: OrderedDict[Key, _Captured] = OrderedDict()

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """As `Cohort`; raises `CannotBatchError` without a GPU, too."""
        if local.objective.device.type != "cuda":
            raise CannotBatchError("graphs are captured on NVIDIA GPUs only")
        return super().train(local, works, probe)

    def compute(self, local: LocalTraining, inputs: RoundInputs) -> list[LocalResult]:
        """The results of the rows: computed, captured, or replayed."""
        key = (local, inputs.shape, structure(inputs.tensors()))
        self._seen[key] += 1
        grouped = not inputs.shape.is_even and not local.is_separable  # makes its groups on the host
        if self._seen[key] == 1 or grouped:
            return super().compute(local, inputs)
        if key not in self._captured:
            self._captured[key] = _capture(local, inputs)
            if len(self._captured) > KEPT:
                self._captured.popitem(last=False)
        self._captured.move_to_end(key)
        return self._captured[key].replay(inputs)


def _capture(local: LocalTraining, inputs: RoundInputs) -> _Captured:
    """The graph of a round of this shape, which is not run yet."""
    held = inputs.with_tensors(apply(torch.clone, inputs.tensors()))
    computation, graph = CohortRound(local, inputs.shape), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ends = computation(held)
    return _Captured(computation, graph, held.tensors(), ends)
