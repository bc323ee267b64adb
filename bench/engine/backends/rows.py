"""A cohort's tensors: one row `[R, ...]` for each client, in dictionaries of dictionaries."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Rows = dict[Any, Any]
"""Tensors `[R, ...]`, or such dictionaries, by name."""


def apply(function: Callable[..., Tensor], *rows: Rows) -> Rows:
    """The function on every tensor of one dictionary, or on the tensors of one name of several."""
    first = rows[0]
    return {
        name: apply(function, *(part[name] for part in rows))
        if isinstance(value, dict)
        else function(*(part[name] for part in rows))
        for name, value in first.items()
    }


def stack(entries: Sequence[Rows]) -> Rows:
    """Rows from one entry per client."""
    return apply(lambda *tensors: torch.stack(tensors), *entries)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """All rows of the parts, in their order."""
    return parts[0] if len(parts) == 1 else apply(lambda *tensors: torch.cat(tensors), *parts)


def take(rows: Rows, which: slice | Tensor) -> Rows:
    """Some of the rows."""
    return apply(lambda tensor: tensor[which], rows)
