"""Records of equal size in a memory-mapped file; a slot is reused as soon as nothing refers to it."""

import mmap
import os
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedflat.bench.input.errors import UserError


class Slot:
    """The position of a record in the file; the slot is free again when this object is garbage-collected."""

    __slots__ = ("_file", "checksum", "number")

    def __init__(self, file: "SlotFile", number: int) -> None:
        self._file = file
        self.number = number
        self.checksum = 0

    @property
    def record(self) -> Tensor:
        """A view of the record's bytes, uint8 `[size]`. Copy them if they are needed after the slot is free again."""
        return torch.from_numpy(self._file.rows[self.number])

    def seal(self) -> None:
        """Store the CRC-32 of the written bytes as `checksum`."""
        self.checksum = zlib.crc32(self._file.rows[self.number].data)

    def __del__(self) -> None:
        self._file.free.add(self.number)


class SlotFile:
    """A file of records of `size` bytes, which grows by a quarter when no slot is free.

    All slots of an existing file are free until they are claimed or taken. Disk space is reserved before it is mapped:
    a full disk then raises a `UserError`, and does not kill the process by a signal.

    `rows`: the bytes of each record, uint8 `[size]`; `free`: the numbers of the slots that nothing refers to.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.rows: list[NDArray[np.uint8]] = []
        self.free: set[int] = set()
        self._size = size
        self._stride = -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY  # where maps may begin
        try:
            path.touch()
            self._file = path.open("r+b")
            self._map(path.stat().st_size // self._stride)
        except OSError as error:
            raise UserError(f"cannot write '{path}': {error.strerror}") from None

    def take(self) -> Slot:
        """A free slot, to be filled and sealed."""
        if not self.free:
            self._grow(max(4, len(self.rows) // 4))
        return Slot(self, self.free.pop())

    def claim(self, number: int, checksum: int) -> Slot | None:
        """A slot that was filled before; None if the file no longer holds bytes with this checksum."""
        if number not in self.free:
            return None
        self.free.remove(number)
        slot = Slot(self, number)
        slot.seal()
        return slot if slot.checksum == checksum else None

    def sync(self) -> None:
        """Wait until everything that was written is on disk."""
        os.fsync(self._file.fileno())

    def _grow(self, count: int) -> None:
        begin, length = len(self.rows) * self._stride, count * self._stride
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), begin, length)
            else:  # macOS cannot reserve
                os.truncate(self._file.fileno(), begin + length)
            self._map(count)
        except OSError as error:
            raise UserError(f"cannot write '{self.path}': {error.strerror}") from None

    def _map(self, count: int) -> None:
        """Map the next `count` records."""
        if count:
            begin = len(self.rows)
            view = mmap.mmap(self._file.fileno(), count * self._stride, offset=begin * self._stride)
            self.rows += list(np.frombuffer(view, np.uint8).reshape(count, self._stride)[:, : self._size])
            self.free.update(range(begin, begin + count))
