"""Safetensors files with checksums, written and read tensor by tensor: their content may be larger than memory."""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from fedflat.bench.files.atomic import replacing
from fedflat.bench.files.checksums import CHECKSUM, DIFFERS, checksum, damage_in_one_line, note_unchecked

Kind = tuple[torch.dtype, tuple[int, ...]]
"""A tensor's number format and shape."""

_FORMATS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip

_METADATA, _CHECKSUMS = "__metadata__", "checksums"


def write_tensors(
    path: Path, kinds: Mapping[str, Kind], tensors: Iterable[tuple[str, Tensor]], metadata: Mapping[str, str]
) -> None:
    """Write named tensors atomically; `kinds` declares all of them, `tensors` yields them in any order.

    Two entries are added to the metadata: `checksums`, the checksum of each tensor by its name, as JSON; and
    `checksum`, that of all other entries of the header.
    """
    names = sorted(kinds, key=lambda name: (-kinds[name][0].itemsize, name))  # so that every tensor is aligned
    ends = [0, *accumulate(prod(shape) * dtype.itemsize for dtype, shape in (kinds[name] for name in names))]
    offsets = dict(zip(names, ends, strict=False))
    layout = {
        name: {"dtype": _FORMATS[kinds[name][0]], "shape": kinds[name][1], "data_offsets": (begin, end)}
        for name, begin, end in zip(names, ends, ends[1:], strict=False)
    }
    checksums = dict.fromkeys(names, checksum(b""))
    begin = len(_header(layout, metadata, checksums))  # all checksums have the same length
    with replacing(path) as temporary, temporary.open("wb") as file:
        for name, v in tensors:
            content = _bytes(v)
            file.seek(begin + offsets[name])
            file.write(content)
            checksums[name] = checksum(content)
        file.seek(0)
        file.write(_header(layout, metadata, checksums))


def _header(layout: Mapping[str, object], metadata: Mapping[str, str], checksums: Mapping[str, str]) -> bytes:
    """The beginning of a safetensors file up to its first tensor: the header's length, and the header."""
    about = {**metadata, _CHECKSUMS: json.dumps(checksums)}
    header = {_METADATA: about, **layout}
    about[CHECKSUM] = _checksum_of_header(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _checksum_of_header(header: Mapping[str, object]) -> str:
    return checksum(json.dumps(header).encode())


class TensorFile:
    """Named tensors in an open file; `metadata` describes them. `is_checked`: whether the file has `checksums`."""

    def __init__(self, file: Any, metadata: Mapping[str, str], *, is_checked: bool) -> None:
        self.names: list[str] = list(file.keys())
        self.metadata = metadata
        self.is_checked = is_checked
        self._file = file
        self.checksums: Mapping[str, str] = json.loads(metadata[_CHECKSUMS]) if is_checked else {}

    def read(self, name: str, device: torch.device) -> Tensor:
        """A copy of a tensor on a device, at an aligned address; a ValueError if it does not match its checksum.

        In the file, a tensor may start at any address; the address of a vector can change the rounding of sums over it.
        """
        v: Tensor = self._file.get_tensor(name).clone()
        if self.is_checked and self.checksums[name] != checksum_of(v):
            raise ValueError(DIFFERS)
        return v.to(device)


@contextmanager
def open_tensors(path: Path, remedy: str) -> Iterator[TensorFile]:
    """Open a safetensors file for reading.

    A `DamagedFileError` that ends with `remedy` if the file is missing, truncated or of another kind, or if a checksum
    does not match. A KeyError, ValueError, TypeError or AttributeError of the block becomes this error, too: a file
    without checksums may lack what its reader needs.
    """
    with damage_in_one_line(path, remedy):
        about, stated = _checked_metadata(path)
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                yield TensorFile(file, about, is_checked=stated is not None)
        except safetensors.SafetensorError as error:
            raise ValueError(error) from None


def check_header(path: Path, remedy: str) -> None:
    """A `DamagedFileError` if a safetensors file is missing, has another size than its header says, or if the header
    does not match its checksum. No tensor is read, however large they are."""
    with damage_in_one_line(path, remedy):
        _checked_metadata(path)


def _checked_metadata(path: Path) -> tuple[dict[str, str], str | None]:
    """The metadata of a safetensors file, and the checksum of its header; a ValueError if the file is damaged."""
    header = _read_header(path)
    about = header[_METADATA]
    stated = about.pop(CHECKSUM, None)
    if stated is None:
        note_unchecked(path)
    elif stated != _checksum_of_header(header):
        raise ValueError(DIFFERS)
    return about, stated


def _read_header(path: Path) -> Any:
    """The header of a safetensors file; a ValueError if the file is cut or longer, or the header no JSON."""
    with path.open("rb") as file:
        size, length = path.stat().st_size, int.from_bytes(file.read(8), "little")
        if not 0 < length <= size - 8:
            raise ValueError("it is truncated, or not a safetensors file")
        header = json.loads(file.read(length))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != _METADATA]
    if size != 8 + length + max(ends, default=0):
        raise ValueError("it has another size than its header says")
    return header


def checksum_of(v: Tensor) -> str:
    """The checksum of a tensor's bits."""
    return checksum(_bytes(v))


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same number format, shape and bits, so that NaN equals NaN and 0 differs from -0."""
    return a.dtype == b.dtype and a.shape == b.shape and bool(_bytes(a) == _bytes(b))


def _bytes(v: Tensor) -> memoryview:
    """The bytes of a tensor."""
    content: memoryview = v.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
    return content
