"""A cohort's whole round as one CUDA graph: one call launches all kernels of all local steps.

The first round of a shape is computed without a graph, which initialises libraries; the second is captured, and later
rounds of the same shape are replayed: new inputs are copied over the old ones, and the results are copied before the
next replay.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from bench.engine.backends.cohort import Cohort, CohortRound
from bench.engine.backends.inputs import RoundInputs, RoundShape
from bench.engine.backends.rows import Rows, apply, structure
from bench.engine.local import LocalResult, LocalTraining, LocalWork, Probe
from bench.methods.base import CannotBatchError

Key = tuple[LocalTraining, RoundShape, tuple[Any, ...]]
"""Two rounds with equal keys can use the same graph."""

MOST_GRAPHS = 4
"""Largest number of graphs in memory; each holds the activations of a local step."""


@dataclass(frozen=True)
class _Captured:
    """A captured graph, and the tensors that it reads and writes."""

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

    warm_up: ClassVar[int] = 2
    """One call without a graph, and one that captures it."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: Counter[Key] = Counter()
        self._captured: OrderedDict[Key, _Captured] = OrderedDict()

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """See `Cohort`. Raises `CannotBatchError` also if there is no GPU."""
        if local.objective.device.type != "cuda":
            raise CannotBatchError("graphs are captured on NVIDIA GPUs only")
        return super().train(local, works, probe)

    def compute(self, local: LocalTraining, inputs: RoundInputs) -> list[LocalResult]:
        """The results of the rows: computed, captured, or replayed."""
        key = (local, inputs.shape, structure(inputs.tensors()))
        self._seen[key] += 1
        grouped = not inputs.shape.is_even and not local.is_separable  # groups of rows are formed on the host
        if self._seen[key] == 1 or grouped:
            return super().compute(local, inputs)
        if key not in self._captured:
            self._captured[key] = _capture(local, inputs)
            if len(self._captured) > MOST_GRAPHS:
                self._captured.popitem(last=False)
        self._captured.move_to_end(key)
        return self._captured[key].replay(inputs)


def _capture(local: LocalTraining, inputs: RoundInputs) -> _Captured:
    """The graph of a round of this shape; capturing does not compute the round."""
    held = inputs.with_tensors(apply(torch.clone, inputs.tensors()))
    computation, graph = CohortRound(local, inputs.shape), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ends = computation(held)
    return _Captured(computation, graph, held.tensors(), ends)
