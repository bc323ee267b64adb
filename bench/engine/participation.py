"""Which clients take part in a round."""

import numpy as np

from bench.config import Participation
from bench.engine.streams import numpy_stream


def active_clients(participation: Participation, clients: int, seed: int, round_index: int) -> list[int]:
    """Sorted ids of the active clients S^t: a function of seed and round alone, so the same for every method.

    `fixed` draws without replacement; `bernoulli` draws each client independently, again while nobody is active.
    """
    stream = numpy_stream(seed, "participation", round_index)
    if participation.sampling == "fixed":
        chosen = stream.choice(clients, size=participation.active, replace=False)
    else:
        assert participation.probability is not None  # validated with the sampling
        chosen = np.empty(0, dtype=np.int64)
        while len(chosen) == 0:
            chosen = np.flatnonzero(stream.random(clients) < participation.probability)
    return sorted(int(i) for i in chosen)
