"""Modes that find, without a GPU, where the host would wait for one, and where tensors of two devices meet.

The device is torch's `meta`, whose tensors have no numbers: whatever needs one on the host is an error there.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from fedflat.bench.models.dropout import KeyedDraws

DEVICE = torch.device("meta")
DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class HostWaitsError(Exception):
    """The host would wait for the device, or an operation would mix devices."""


class NeverWaits(TorchDispatchMode):
    """Raises unless operations stay on one device; only transfers from page-locked memory are allowed, and counted."""

    def __init__(self) -> None:
        super().__init__()
        self.transfers = 0
        self._pinned: list[Tensor] = []

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        pinned = given.pop("pin_memory", False)  # there is no such memory without a GPU
        tensors = [t for t in tree_iter((args, given)) if isinstance(t, Tensor)]
        by_numbers = func is torch.ops.aten.index.Tensor and all(t.dtype != torch.bool for t in tree_iter(args[1:]))
        if DEPENDENT & set(func.tags) and not by_numbers and any(t.device == DEVICE for t in tensors):
            raise HostWaitsError(f"{func} needs numbers of the device on the host")
        result = func(*args, **given)
        if pinned:
            self._pinned.append(result)
        devices = [t.device for t in (*tensors, *(t for t in tree_iter(result) if isinstance(t, Tensor)))]
        if len(set(devices)) > 1:
            self._check_transfer(func, args, given, result)
        return result

    def _check_transfer(self, func: Any, args: Sequence[Any], given: Mapping[str, Any], result: Tensor) -> None:
        source, non_blocking = (args[1], args[2:3] == (True,)) if func in COPIES and len(args) > 1 else (args[0], False)
        if func not in COPIES or result.device != DEVICE:
            raise HostWaitsError(f"{func} has tensors of two devices, or reads from one")
        if not (non_blocking or given.get("non_blocking")):
            raise HostWaitsError(f"{func} waits for the device before it copies")
        begins = {memory.untyped_storage().data_ptr() for memory in self._pinned}
        if source.untyped_storage().data_ptr() not in begins:
            raise HostWaitsError(f"{func} copies from memory that is not page-locked")
        self.transfers += 1


class NoConstants(TorchFunctionMode):
    """Raises where a tensor on the device is made of Python numbers, which are copied while the host waits."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in {torch.tensor, torch.as_tensor, Tensor.new_tensor} and result.device == DEVICE:
            raise HostWaitsError(f"{func.__name__} copies numbers to the device (allowed: full, new_full, zeros, ...)")
        return result


@contextmanager
def never_waits(monkeypatch: Any) -> Iterator[NeverWaits]:
    """In the block the host may not wait for `DEVICE`."""
    draws = KeyedDraws.__init__
    with monkeypatch.context() as patch, NoConstants(), NeverWaits() as mode:
        # `meta` has no generator; those of a GPU are seeded and used without waiting.
        patch.setattr(KeyedDraws, "__init__", lambda self, seed, device: draws(self, seed, torch.device("cpu")))
        yield mode
