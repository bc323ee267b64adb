"""Cohorts by CUDA graphs in which each client is a branch of its own: kernels of several clients run at the same time.

A branch computes with the weights of one client, for which libraries have faster kernels than for batched weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.rows import Rows, apply, leaves, stack

MOST_STREAMS = 32
"""The number of streams that torch has; further clients share them."""


class Branches(Graph):
    """As `Graph`, but the function of a row is called once for each row, on a stream of its own."""

    def mapped(self, function: Callable[..., Rows], *rows: Rows) -> Rows:
        """The function of one row, applied to each row."""
        first = next(leaves(rows[0]))
        ends = []
        with _streams(len(first), first.device) as streams:
            for row in range(len(first)):
                with torch.cuda.stream(streams[row % MOST_STREAMS] if streams else None):
                    ends.append(function(*(apply(lambda tensor: tensor[row], part) for part in rows)))  # noqa: B023
        return stack(ends)


@contextmanager
def _streams(count: int, device: torch.device) -> Iterator[list[torch.cuda.Stream]]:
    """Streams that begin after the current stream's work, which continues after theirs; none on a CPU."""
    if device.type != "cuda":
        yield []
        return
    current, streams = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in range(min(count, MOST_STREAMS))]
    for stream in streams:
        stream.wait_stream(current)
    try:
        yield streams
    finally:
        for stream in streams:
            current.wait_stream(stream)
