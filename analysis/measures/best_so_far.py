"""The best score among the first trials of a search, over random orders in which its trials could have been drawn.

So results do not depend on one lucky order (AlgoPerf, Dahl et al. 2023; DomainBed, Gulrajani and Lopez-Paz 2021).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Orders = NDArray[np.intp]


def random_orders(trials: int, count: int) -> Orders:
    """`count` random orders of `trials` trials `[count, trials]`, always the same ones; trial 0 stays the first."""
    others = np.tile(np.arange(1, trials), (count, 1))
    drawn = np.random.default_rng(0).permuted(others, axis=1)
    return np.concatenate([np.zeros((count, 1), dtype=np.intp), drawn], axis=1)


def best_so_far(scores: ArrayLike, orders: Orders) -> Floats:
    """The best of the first n scores in each order, for n = 1 ... N; `[orders, N]`.

    `scores`: one per trial, higher is better. If there are fewer scores than trials in the orders, the missing trials
    are skipped, and the best score of all is repeated at the end.
    """
    values = np.asarray(scores, dtype=float)
    count, trials = orders.shape
    own = orders[orders < len(values)].reshape(count, len(values))
    best = np.maximum.accumulate(values[own], axis=1)
    return np.concatenate([best, np.repeat(best[:, -1:], trials - len(values), axis=1)], axis=1)
