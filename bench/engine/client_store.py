"""The states of the clients that have taken part, in memory up to a budget, then in a file.

    GPU memory        up to its budget; only with a GPU
    host memory       up to its budget; page-locked with a GPU, so that transfers run in the background
    slot of a file    all further states, and every state that a checkpoint has written

The place of a vector does not change its bits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from fedflat.bench.files.slot_file import Slot, SlotFile
from fedflat.bench.host.memory import Budgets
from fedflat.bench.input.errors import UserError

Vectors = Mapping[str, Tensor]
"""A client's tensors by name."""

_ALIGNMENT = 64
"""Alignment of tensors in a record, the same as in torch's memory: it can change the rounding of sums."""


@dataclass(frozen=True)
class RecordFormat:
    """Name, number format and shape of each tensor in a client's record; the same for all clients of a run."""

    fields: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]

    @classmethod
    def of(cls, vectors: Vectors) -> "RecordFormat":
        """The format of these tensors."""
        return cls(tuple((name, v.dtype, tuple(v.shape)) for name, v in sorted(vectors.items())))

    @classmethod
    def from_json(cls, fields: list[tuple[str, str, list[int]]]) -> "RecordFormat":
        """The format that `as_json` described."""
        return cls(tuple((name, getattr(torch, dtype), tuple(shape)) for name, dtype, shape in fields))

    def as_json(self) -> list[tuple[str, str, list[int]]]:
        """The format as plain values."""
        return [(name, str(dtype).removeprefix("torch."), list(shape)) for name, dtype, shape in self.fields]

    @cached_property
    def offsets(self) -> list[int]:
        """The offset of each tensor in a record, in bytes; the last number is the size of the record."""
        sizes = [prod(shape) * dtype.itemsize for _, dtype, shape in self.fields]
        return list(accumulate((-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes), initial=0))

    @property
    def size(self) -> int:
        """The size of a record in bytes."""
        return self.offsets[-1]

    def views(self, record: Tensor) -> dict[str, Tensor]:
        """The tensors of a record, uint8 `[size]`."""
        return {
            name: record[begin : begin + prod(shape) * dtype.itemsize].view(dtype).view(shape)
            for (name, dtype, shape), begin in zip(self.fields, self.offsets[:-1], strict=True)
        }

    def __str__(self) -> str:
        return ", ".join(f"{name} {shape} {dtype}" for name, dtype, shape in self.as_json())


class MemoryPool:
    """One kind of memory with a budget in bytes; `used` counts the bytes stored there."""

    def __init__(self, budget: float, *, pinned: bool = False) -> None:
        self.budget = budget
        self.pinned = pinned
        self.used = 0

    def store(self, vectors: Vectors, size: int) -> "PooledVectors":
        """Store the vectors, of `size` bytes in total, in this memory."""
        return PooledVectors(
            self, {name: _pinned(v) if self.pinned else _compact(v) for name, v in vectors.items()}, size
        )


class PooledVectors:
    """Vectors in a memory pool; their bytes count as used until this object is garbage-collected."""

    __slots__ = ("_memory", "_size", "vectors")

    def __init__(self, memory: MemoryPool, vectors: Vectors, size: int) -> None:
        memory.used += size
        self._memory = memory
        self._size = size
        self.vectors = vectors

    def __del__(self) -> None:
        self._memory.used -= self._size


def _pinned(v: Tensor) -> Tensor:
    """A copy in page-locked memory; complete after the device has been synchronised."""
    return torch.empty_like(v, device="cpu", pin_memory=True).copy_(v, non_blocking=True)


def _compact(v: Tensor) -> Tensor:
    """The tensor itself, or a copy if it is a view of a larger tensor, which it would keep alive."""
    return v if v.untyped_storage().nbytes() == v.nbytes else v.clone()


@dataclass(slots=True)
class StoredClient:
    """A client's stored state: in memory, in a slot of the file, or in both after a checkpoint."""

    pooled: PooledVectors | None
    slot: Slot | None


class ClientStore:
    """The store of the client states of one run. Without a file, all states are in memory, without a limit.

    `record_format` and `device` are taken from the first vectors that are stored, or from a checkpoint.
    """

    def __init__(self, path: Path | None = None, budgets: Budgets | None = None) -> None:
        self.path = path
        self._budgets = budgets if budgets is not None and path is not None else Budgets()
        self._file: SlotFile | None = None
        self._pools: list[MemoryPool] = []
        self.record_format: RecordFormat | None = None
        self.device = torch.device("cpu")

    def expect(self, record_format: RecordFormat, device: torch.device) -> None:
        """Set the format of the records, and the device on which vectors are needed."""
        self.record_format, self.device = record_format, device
        cuda = device.type == "cuda"
        self._pools = [MemoryPool(self._budgets.device)] if cuda else []
        self._pools.append(MemoryPool(self._budgets.host, pinned=cuda))

    def put(self, client: int, vectors: Vectors) -> StoredClient:
        """Store a client's vectors where there is room; a `UserError` if their format differs from other clients'."""
        vectors = {name: v.detach() for name, v in vectors.items()}
        record_format = RecordFormat.of(vectors)
        if self.record_format is None:
            largest = max(vectors.values(), key=lambda v: v.nbytes)  # single numbers may be on another device
            self.expect(record_format, largest.device)
        if record_format != self.record_format:
            raise UserError(
                f"client {client} has the state {record_format}, but other clients have {self.record_format}: "
                "names, shapes and number formats must be the same for all clients and rounds"
            )
        pool = self._room()
        if pool is None:
            return StoredClient(None, self._write(vectors))
        return StoredClient(pool.store(vectors, record_format.size), None)

    def read(self, client: StoredClient) -> dict[str, Tensor]:
        """The vectors on the device; they must not be changed in place."""
        if client.pooled is not None:
            return {name: v.to(self.device, non_blocking=True) for name, v in client.pooled.vectors.items()}
        assert self.record_format is not None
        assert client.slot is not None
        return self.record_format.views(client.slot.record.to(self.device, copy=True))

    def persist(self, stored: Iterable[StoredClient]) -> list[Slot]:
        """The slots of these states. States that are not in the file yet are written; all are on disk on return."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # so that transfers to page-locked memory have ended
        slots: list[Slot] = []
        for client in stored:
            if client.slot is None:
                assert client.pooled is not None
                client.slot = self._write(client.pooled.vectors)
            slots.append(client.slot)
        if self._file is not None:
            self._file.sync()
        return slots

    def restore(self, number: int, checksum: int) -> StoredClient | None:
        """The state in this slot, read into memory if there is room; None if the file no longer holds it."""
        slot = self._slots().claim(number, checksum)
        if slot is None:
            return None
        client = StoredClient(None, slot)
        if (pool := self._room()) is not None:
            assert self.record_format is not None
            client.pooled = pool.store(self.read(client), self.record_format.size)
        return client

    def remove_file(self) -> None:
        """Remove the file; the next state that needs one is written to a new file."""
        self._file = None
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _room(self) -> MemoryPool | None:
        assert self.record_format is not None
        size = self.record_format.size
        return next((pool for pool in self._pools if pool.used + size <= pool.budget), None)

    def _write(self, vectors: Vectors) -> Slot:
        assert self.record_format is not None
        slot = self._slots().take()
        for name, view in self.record_format.views(slot.record).items():
            view.copy_(vectors[name])
        slot.seal()
        return slot

    def _slots(self) -> SlotFile:
        if self._file is None:
            assert self.record_format is not None
            assert self.path is not None  # without a file, memory has no limit
            self._file = SlotFile(self.path, self.record_format.size)
        return self._file


class ClientStates(Mapping[int, dict[str, Tensor]]):
    """The named vectors of the clients that have taken part, by client id. Immutable: each round creates new ones."""

    def __init__(self, store: ClientStore | None = None, stored: Mapping[int, StoredClient] | None = None) -> None:
        self.store = store or ClientStore()
        self.stored = stored or {}

    def updated(self, changes: Mapping[int, Vectors]) -> "ClientStates":
        """These states with new vectors for some clients; clients without vectors have no state."""
        changed = {i: self.store.put(i, vectors) for i, vectors in changes.items() if vectors}
        return ClientStates(self.store, {**self.stored, **changed}) if changed else self

    @property
    def in_memory(self) -> int:
        """The number of states in memory; the others are in the file only."""
        return sum(client.pooled is not None for client in self.stored.values())

    def __getitem__(self, client: int) -> dict[str, Tensor]:
        return self.store.read(self.stored[client])

    def __iter__(self) -> Iterator[int]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)
