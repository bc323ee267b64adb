"""FL-Simulator's rule for assigning images to clients: an exhausted class is refilled, so that images repeat."""

from bisect import bisect_left

import numpy as np

from fedflat.bench.data.dataset import Labels
from fedflat.bench.data.partitions.base import Indices, Proportions, class_pools


def fill_and_refill(
    labels: Labels, proportions: Proportions, sizes: Indices, stream: np.random.Generator
) -> list[Indices]:
    """Fills clients of the given `sizes` `[N]` according to their class `proportions` `[N, classes]`.

    A random client that is not yet full draws a class, the first one whose cumulative proportion reaches a uniform
    number, and takes the last unused image of it. If there is none, all images of the class count as unused again, and
    the client draws another class.
    """
    pools = [pool.tolist() for pool in class_pools(labels, stream)]
    left = [len(pool) for pool in pools]
    # A class without images would be refilled for ever.
    proportions = proportions * (np.array(left) > 0)
    nowhere = proportions.sum(1) == 0
    proportions[nowhere] = left
    cumulative = (proportions.cumsum(1) / proportions.sum(1, keepdims=True)).tolist()
    last = [bisect_left(row, row[-1]) for row in cumulative]
    chosen: list[list[int]] = [[] for _ in sizes]
    open_clients = list(range(len(sizes)))
    while open_clients:
        k = int(stream.integers(len(open_clients)))
        client = open_clients[k]
        row = cumulative[client]
        # 1 − u is never 0, so that a class of proportion 0 is never drawn.
        while left[c := min(bisect_left(row, 1 - stream.random()), last[client])] == 0:
            left[c] = len(pools[c])
        left[c] -= 1
        chosen[client].append(pools[c][left[c]])
        if len(chosen[client]) == sizes[client]:
            del open_clients[k]  # remove(client) would search the whole list
    return [np.asarray(indices, dtype=np.int64) for indices in chosen]
