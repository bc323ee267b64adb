"""Which of a model's buffers, such as the running statistics of BatchNorm, clients keep in a federation."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from bench.input.errors import UserError
from bench.input.frozen import Frozen


class LocalBuffers(Frozen):
    """Clients keep the buffers whose names match a pattern; all others are averaged."""

    in_words: ClassVar[str] = "buffers"

    local: tuple[str, ...] = Field(
        min_length=1, description="patterns of the names of buffers, with * for any text, such as *.bn.*"
    )

    def __str__(self) -> str:
        return f"{{local: [{', '.join(self.local)}]}}"


BufferMode = Literal["average", "local"] | LocalBuffers


def kept_positions(mode: BufferMode, buffers: Mapping[str, Tensor]) -> Tensor:
    """The positions `[K]` of the kept buffers in the flat vector `[B]` of these buffers, by name, on their device.

    A `UserError` names a pattern that matches no buffer.
    """
    if isinstance(mode, LocalBuffers):
        for pattern in mode.local:
            if not any(fnmatchcase(name, pattern) for name in buffers):
                raise UserError(
                    f"buffers: the pattern '{pattern}' matches no buffer of the model (its first one is "
                    f"'{next(iter(buffers), '')}')"
                )
    masks = [torch.full((b.numel(),), _is_kept(mode, name), device=b.device) for name, b in buffers.items()]
    return torch.cat(masks).nonzero().flatten()


def _is_kept(mode: BufferMode, name: str) -> bool:
    if isinstance(mode, LocalBuffers):
        return any(fnmatchcase(name, pattern) for pattern in mode.local)
    return mode == "local"
