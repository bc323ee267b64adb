"""What clients keep between rounds: of those alone that took part, in memory up to a budget, then in a file.

    the GPU's memory     while its budget lasts; there is none on a CPU
    the host's memory    page-locked beside a GPU, so that nobody waits while vectors move
    a slot of a file     the rest, and whatever a checkpoint has written

Where vectors lie changes no bit of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from bench.files.slot_file import Slot, SlotFile
from bench.host.memory import Budgets
from bench.input.errors import UserError

Vectors = Mapping[str, Tensor]
"""A client's tensors by name."""

_ALIGNMENT = 64
"""Where a tensor may begin in a record: as in torch's own memory, since that can change the rounding of sums."""


@dataclass(frozen=True)
class Layout:
    """Name, number format and shape of each of a client's tensors; the same for all clients of a run."""

    fields: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]

    @classmethod
    def of(cls, vectors: Vectors) -> "Layout":
        """That of these tensors."""
        return cls(tuple((name, v.dtype, tuple(v.shape)) for name, v in sorted(vectors.items())))

    @classmethod
    def from_json(cls, fields: list[tuple[str, str, list[int]]]) -> "Layout":
        """What `as_json` describes."""
        return cls(tuple((name, getattr(torch, dtype), tuple(shape)) for name, dtype, shape in fields))

    def as_json(self) -> list[tuple[str, str, list[int]]]:
        """A description of plain values."""
        return [(name, str(dtype).removeprefix("torch."), list(shape)) for name, dtype, shape in self.fields]

    @cached_property
    def offsets(self) -> list[int]:
        """Where each tensor begins in a record, in bytes; at last the size of the record."""
        sizes = [prod(shape) * dtype.itemsize for _, dtype, shape in self.fields]
        return list(accumulate((-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes), initial=0))

    @property
    def size(self) -> int:
        """Bytes of a record."""
        return self.offsets[-1]

    def views(self, record: Tensor) -> dict[str, Tensor]:
        """The tensors of a record, uint8 `[size]`."""
        return {
            name: record[begin : begin + prod(shape) * dtype.itemsize].view(dtype).view(shape)
            for (name, dtype, shape), begin in zip(self.fields, self.offsets[:-1], strict=True)
        }

    def __str__(self) -> str:
        return ", ".join(f"{name} {shape} {dtype}" for name, dtype, shape in self.as_json())


class Memory:
    """Room for so many bytes in one kind of memory; `used` counts what is kept there."""

    def __init__(self, budget: float, *, pinned: bool = False) -> None:
        self.budget = budget
        self.pinned = pinned
        self.used = 0

    def keep(self, vectors: Vectors, size: int) -> "Kept":
        """The vectors, of so many bytes, in this memory."""
        return Kept(self, {name: _pinned(v) if self.pinned else _alone(v) for name, v in vectors.items()}, size)


class Kept:
    """Vectors in memory, which count as used as long as anything refers to this object."""

    __slots__ = ("_memory", "_size", "vectors")

    def __init__(self, memory: Memory, vectors: Vectors, size: int) -> None:
        memory.used += size
        self._memory = memory
        self._size = size
        self.vectors = vectors

    def __del__(self) -> None:
        self._memory.used -= self._size


def _pinned(v: Tensor) -> Tensor:
    """A copy in page-locked memory; complete when the device has been synchronised."""
    return torch.empty_like(v, device="cpu", pin_memory=True).copy_(v, non_blocking=True)


def _alone(v: Tensor) -> Tensor:
    """The tensor itself, or a copy where it is part of a larger one that it would keep alive."""
    return v if v.untyped_storage().nbytes() == v.nbytes else v.clone()


@dataclass(slots=True)
class Entry:
    """Where a client's vectors are: in memory, in a slot of the file, or in both after a checkpoint."""

    kept: Kept | None
    slot: Slot | None


class Store:
    """The places where the client states of one run lie. Without a file, memory is all there is, without a limit.

    `layout` and `device` are those of the first vectors that are put in, or of a checkpoint.
    """

    def __init__(self, path: Path | None = None, budgets: Budgets | None = None) -> None:
        self.path = path
        self._budgets = budgets if budgets is not None and path is not None else Budgets()
        self._file: SlotFile | None = None
        self._memories: list[Memory] = []
        self.layout: Layout | None = None
        self.device = torch.device("cpu")

    def expect(self, layout: Layout, device: torch.device) -> None:
        """Be told what vectors will be put in, and on which device they are needed."""
        self.layout, self.device = layout, device
        cuda = device.type == "cuda"
        self._memories = [Memory(self._budgets.device)] if cuda else []
        self._memories.append(Memory(self._budgets.host, pinned=cuda))

    def put(self, client: int, vectors: Vectors) -> Entry:
        """Keep a client's vectors where there is room; a `UserError` if they differ in kind from other clients'."""
        vectors = {name: v.detach() for name, v in vectors.items()}
        layout = Layout.of(vectors)
        if self.layout is None:
            self.expect(layout, max(vectors.values(), key=lambda v: v.nbytes).device)  # lone numbers may be elsewhere
        if layout != self.layout:
            raise UserError(
                f"client {client} keeps {layout}, but others {self.layout}: "
                "names, shapes and number formats must be the same for all clients and rounds"
            )
        memory = self._room()
        return Entry(None, self._write(vectors)) if memory is None else Entry(memory.keep(vectors, layout.size), None)

    def read(self, entry: Entry) -> dict[str, Tensor]:
        """The vectors on the device, never to be edited in place."""
        if entry.kept is not None:
            return {name: v.to(self.device, non_blocking=True) for name, v in entry.kept.vectors.items()}
        assert self.layout is not None
        assert entry.slot is not None
        return self.layout.views(entry.slot.record.to(self.device, copy=True))

    def persist(self, entries: Iterable[Entry]) -> list[Slot]:
        """The slots of these entries; what is not in the file yet is written, and on disk on return."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # transfers to page-locked memory have ended
        slots: list[Slot] = []
        for entry in entries:
            if entry.slot is None:
                assert entry.kept is not None
                entry.slot = self._write(entry.kept.vectors)
            slots.append(entry.slot)
        if self._file is not None:
            self._file.sync()
        return slots

    def restore(self, number: int, checksum: int) -> Entry | None:
        """What was persisted there, in memory too if there is room; None if the file does not hold it any more."""
        slot = self._slots().claim(number, checksum)
        if slot is None:
            return None
        entry = Entry(None, slot)
        if (memory := self._room()) is not None:
            assert self.layout is not None
            entry.kept = memory.keep(self.read(entry), self.layout.size)
        return entry

    def remove_file(self) -> None:
        """Remove the file, once nothing needs it any more."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _room(self) -> Memory | None:
        assert self.layout is not None
        size = self.layout.size
        return next((memory for memory in self._memories if memory.used + size <= memory.budget), None)

    def _write(self, vectors: Vectors) -> Slot:
        assert self.layout is not None
        slot = self._slots().take()
        for name, view in self.layout.views(slot.record).items():
            view.copy_(vectors[name])
        slot.seal()
        return slot

    def _slots(self) -> SlotFile:
        if self._file is None:
            assert self.layout is not None
            assert self.path is not None  # without a file, memory has no limit
            self._file = SlotFile(self.path, self.layout.size)
        return self._file


class ClientStates(Mapping[int, dict[str, Tensor]]):
    """The named vectors of the clients that have taken part, by client id: a value, of which rounds make new ones."""

    def __init__(self, store: Store | None = None, entries: Mapping[int, Entry] | None = None) -> None:
        self.store = store or Store()
        self.entries = entries or {}

    def updated(self, changes: Mapping[int, Vectors]) -> "ClientStates":
        """These states with those of some clients replaced; clients without any vectors have no state."""
        changed = {i: self.store.put(i, vectors) for i, vectors in changes.items() if vectors}
        return ClientStates(self.store, {**self.entries, **changed}) if changed else self

    @property
    def in_memory(self) -> int:
        """How many of them are in memory; the others are in the file."""
        return sum(entry.kept is not None for entry in self.entries.values())

    def __getitem__(self, client: int) -> dict[str, Tensor]:
        return self.store.read(self.entries[client])

    def __iter__(self) -> Iterator[int]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
