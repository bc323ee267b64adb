"""Safetensors files written tensor by tensor, so that their content may be larger than memory."""

import json
import struct
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from bench.files.atomic import replacing

Kind = tuple[torch.dtype, tuple[int, ...]]
"""A tensor's number format and shape."""

_FORMATS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write_tensors(
    path: Path, kinds: Mapping[str, Kind], tensors: Iterable[tuple[str, Tensor]], metadata: Mapping[str, str]
) -> None:
    """Write named tensors atomically; `kinds` declares all of them, `tensors` yields them in any order."""
    names = sorted(kinds, key=lambda name: (-kinds[name][0].itemsize, name))  # so that every tensor is aligned
    ends = [0, *accumulate(prod(shape) * dtype.itemsize for dtype, shape in (kinds[name] for name in names))]
    offsets = dict(zip(names, ends, strict=False))
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    for name, begin, end in zip(names, ends, ends[1:], strict=False):
        dtype, shape = kinds[name]
        header[name] = {"dtype": _FORMATS[dtype], "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, v in tensors:
            file.seek(8 + len(text) + offsets[name])
            file.write(v.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
