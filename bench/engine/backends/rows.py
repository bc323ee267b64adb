"""A cohort's tensors, with one row `[R, ...]` per client, in nested dictionaries."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Rows = dict[Any, Any]
"""Tensors `[R, ...]`, or further dictionaries, by name."""

ALIGNMENT = 16
"""Alignment of tensors in packed memory, a multiple of the size of every number format."""


def apply(function: Callable[..., Tensor], *rows: Rows) -> Rows:
    """The function applied to each tensor of a dictionary, or to the tensors of the same name in several."""
    first = rows[0]
    if any(part.keys() != first.keys() for part in rows):
        raise ValueError(f"rows with different names: {[sorted(map(str, part)) for part in rows]}")
    return {
        name: apply(function, *(part[name] for part in rows))
        if isinstance(value, dict)
        else function(*(part[name] for part in rows))
        for name, value in first.items()
    }


def leaves(rows: Rows) -> Iterator[Tensor]:
    """The tensors, in the order in which `apply` visits them."""
    for value in rows.values():
        if isinstance(value, dict):
            yield from leaves(value)
        else:
            yield value


def structure(rows: Rows, skip: int = 0) -> tuple[Any, ...]:
    """Names, number formats, and shapes without the first `skip` dimensions, of all tensors."""
    return tuple(
        (name, structure(value, skip) if isinstance(value, dict) else (tuple(value.shape[skip:]), value.dtype))
        for name, value in sorted(rows.items(), key=lambda item: str(item[0]))
    )


def stack(entries: Sequence[Rows]) -> Rows:
    """Rows from one dictionary per client."""
    return apply(lambda *tensors: torch.stack(tensors), *entries)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """All rows of the parts, in their order."""
    return parts[0] if len(parts) == 1 else apply(lambda *tensors: torch.cat(tensors), *parts)


def take(rows: Rows, which: slice | Tensor) -> Rows:
    """The selected rows."""
    return apply(lambda tensor: tensor[which], rows)


def pack(rows: Rows, *, pinned: bool = False) -> tuple[Tensor, Callable[[Tensor], Rows]]:
    """All tensors packed into one tensor of bytes, and a function that unpacks such bytes on any device."""
    tensors = list(leaves(rows))
    sizes = [-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in tensors]
    begins = list(itertools.accumulate(sizes, initial=0))

    def unpack(packed: Tensor) -> Rows:
        parts = iter(zip(tensors, begins, strict=False))

        def view(_: Tensor) -> Tensor:
            tensor, begin = next(parts)
            return packed[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape)

        return apply(view, rows)

    packed = torch.empty(begins[-1], dtype=torch.uint8, pin_memory=pinned)
    apply(lambda place, tensor: place.copy_(tensor), unpack(packed), rows)
    return packed, unpack


def to_device(rows: Rows, device: torch.device) -> Rows:
    """Host tensors on a device; on a GPU, in one transfer from page-locked memory."""
    if device.type == "cpu":
        return rows
    packed, unpack = pack(rows, pinned=True)
    return unpack(packed.to(device, non_blocking=True))
