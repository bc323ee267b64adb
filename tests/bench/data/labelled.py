"""Labelled images without content, and how tests draw a partition of them."""

import numpy as np

from fedflat.bench.data.dataset import Samples
from fedflat.bench.data.partitions.base import Partition
from fedflat.bench.numerics.streams import numpy_stream

CLASSES = 10
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(CLASSES), 60))


def samples(labels: np.ndarray, groups: np.ndarray | None = None, names: np.ndarray | None = None) -> Samples:
    """Images of one black pixel with these labels."""
    return Samples(np.zeros((len(labels), 1, 1, 1), np.uint8), labels, groups, names)


TRAIN = samples(LABELS, groups=LABELS // 2, names=np.array([f"image_{k:03d}.png" for k in range(len(LABELS))]))


def drawn(partition: Partition, train: Samples = TRAIN, seed: int = 0) -> list[np.ndarray]:
    return partition.split(train, numpy_stream(seed, "partition"))
