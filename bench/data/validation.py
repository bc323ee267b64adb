"""Validation: training images that clients hold out, on which settings are compared without the test data."""

from collections.abc import Sequence

import numpy as np

from fedflat.bench.data.partitions.base import Indices
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream


def hold_out(split: Sequence[Indices], share: float, seed: int) -> tuple[list[Indices], Indices]:
    """The sorted indices that each client trains on, and the sorted ones that all clients together hold out.

    A client holds out the rounded share of its images, drawn by the seed: at least one, and at most all but one. A
    `UserError` if no client has two images.
    """
    trained, held = list[Indices](), list[Indices]()
    for client, own in enumerate(split):
        count = min(max(1, round(share * len(own))), len(own) - 1)
        is_held = np.zeros(len(own), dtype=bool)
        is_held[numpy_stream(seed, "validation", client).permutation(len(own))[:count]] = True
        trained.append(own[~is_held])
        held.append(own[is_held])
    union = np.sort(np.concatenate(held))
    if not len(union):
        raise UserError("evaluation.validation: no client has two images, so none can hold out one (allowed: null)")
    return trained, union
