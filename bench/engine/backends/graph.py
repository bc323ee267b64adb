"""Cohorts by CUDA graphs: one call launches all kernels of a local step."""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.inputs import RoundInputs
from fedflat.bench.engine.backends.rows import Rows
from fedflat.bench.engine.backends.static import Capture, Function, StaticRound
from fedflat.bench.engine.local import LocalResult, LocalTraining, LocalWork, Probe
from fedflat.bench.methods.base import CannotBatchError

MOST_FORMS = 4
"""Largest number of forms of rounds whose graphs and tensors are kept in memory."""


@contextmanager
def errors_of_capture() -> Iterator[None]:
    """Turns the errors of operations that a graph cannot contain, because the host waits, into `CannotBatchError`."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise CannotBatchError(f"no graph can be captured: {str(error).splitlines()[0]}") from error


class CudaGraphs:
    """Captures functions as CUDA graphs, which share the memory of their intermediate values."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._latest: torch.cuda.CUDAGraph | None = None  # torch refuses a pool whose graphs are all gone

    def __call__(self, function: Function) -> tuple[Rows, Callable[[], None]]:
        """See `Capture`. Capturing does not compute the function."""
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        try:
            with errors_of_capture(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # some methods finish with nothing
                with torch.cuda.graph(graph, pool=self._pool):
                    values = function()
        finally:
            torch.cuda.set_stream(stream)  # after an error, torch leaves its own
        self._latest = graph
        return values, graph.replay


class Graph(Cohort):
    """Local steps as CUDA graphs; few of them serve all rounds, whatever clients take part (see static.py)."""

    warm_up: int = 2
    """One call without graphs, and one that captures them."""

    def __init__(self, capture: Capture | None = None) -> None:
        super().__init__()
        self._capture = capture or CudaGraphs()
        self._rounds: OrderedDict[Any, StaticRound] = OrderedDict()

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """See `Cohort`. Raises `CannotBatchError` also if there is no GPU."""
        if isinstance(self._capture, CudaGraphs) and local.objective.device.type != "cuda":
            raise CannotBatchError("graphs are captured on NVIDIA GPUs only")
        return super().train(local, works, probe)

    def compute(self, local: LocalTraining, inputs: RoundInputs) -> list[LocalResult]:
        """The results of the rows."""
        if not inputs.shape.is_even and not local.is_separable:  # groups of rows are formed on the host
            return super().compute(local, inputs)
        key = local, StaticRound.form(inputs)
        rows, batch = inputs.steps["index"].shape[1:]
        static = self._rounds.pop(key, None)
        if static is None or rows > static.rows or batch > static.batch:
            if static is not None:
                rows, batch = max(rows, static.rows), max(batch, static.batch)
            del static  # before the new one takes memory
            static = StaticRound(local, inputs, rows, batch, self._capture, self.mapped)
        self._rounds[key] = static
        if len(self._rounds) > MOST_FORMS:
            self._rounds.popitem(last=False)
        return static(inputs)
