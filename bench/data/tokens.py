"""Sequences of token ids, such as characters of a text: whole numbers, which nothing normalises."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


class TokenShape(tuple[int, ...]):
    """The shape (length,) of a sequence of token ids 0 to `vocabulary` − 1; a tuple for all other purposes."""

    vocabulary: int

    def __new__(cls, shape: Iterable[int], vocabulary: int = 0) -> "TokenShape":
        """The default is for copies, whose attributes are set afterwards."""
        new = super().__new__(cls, shape)
        new.vocabulary = vocabulary
        return new


def are_tokens(dtype: torch.dtype) -> bool:
    """Whether numbers of this format are token ids: whole numbers, but not bytes, which are pixels."""
    return dtype != torch.uint8 and not dtype.is_floating_point
