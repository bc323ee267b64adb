"""Random streams that are derived from keys.

A key is (seed, purpose, indices such as round, client, epoch), and each stream starts anew from its key. Draws
therefore do not depend on the order of execution, on restarts, or on the method: with one seed, all methods share
partition, initial model, participation schedule and batches.
"""

import hashlib

import numpy as np
import torch


def _key(seed: int, purpose: str, indices: tuple[int, ...]) -> int:
    text = ":".join([str(seed), purpose, *map(str, indices)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def numpy_stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """A NumPy generator for this key."""
    return np.random.Generator(np.random.Philox(key=_key(seed, purpose, indices)))


def torch_seed(seed: int, purpose: str, *indices: int) -> int:
    """A 63-bit seed for torch's generators, for this key."""
    return _key(seed, purpose, indices) >> 65


def torch_stream(seed: int, purpose: str, *indices: int) -> torch.Generator:
    """A CPU torch generator for this key."""
    return torch.Generator().manual_seed(torch_seed(seed, purpose, *indices))
