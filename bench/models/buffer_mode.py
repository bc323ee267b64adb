"""Which of a model's buffers, such as the running statistics of BatchNorm, clients keep in a federation."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, get_args

import torch
from pydantic import BeforeValidator, Field, ValidationInfo
from torch import Tensor

from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen, as_in_yaml, collected


class LocalBuffers(Frozen):
    """Clients keep the buffers whose names match a pattern; all others are averaged."""

    in_words: ClassVar[str] = "buffers"

    local: tuple[str, ...] = Field(
        min_length=1, description="patterns of the names of buffers, with * for any text, such as *.bn.*"
    )

    def __str__(self) -> str:
        return f"{{local: [{', '.join(self.local)}]}}"


_Named = Literal["average", "local"]
BufferMode = _Named | LocalBuffers

ALLOWED = "average, local, or {local: [PATTERN, ...]}"
"""Every `BufferMode`, in messages."""


def _checked(given: Any, info: ValidationInfo, allowed: str = ALLOWED) -> Any:
    """What is given for a `BufferMode`. Else an error of one line: pydantic would find one for each alternative."""
    if isinstance(given, LocalBuffers) or given in get_args(_Named) or _has_patterns(given):
        return given
    raise collected(UserError(f"buffers = {as_in_yaml(given)} (allowed: {allowed})"), info)


def _checked_or_none(given: Any, info: ValidationInfo) -> Any:
    """As `_checked`; None, or refuse: the model must not have buffers."""
    return None if given in (None, "refuse") else _checked(given, info, f"refuse, {ALLOWED}")


def _has_patterns(given: Any) -> bool:
    """Whether these are the fields of `LocalBuffers`."""
    patterns = given.get("local") if isinstance(given, Mapping) and len(given) == 1 else None
    return isinstance(patterns, list | tuple) and len(patterns) > 0 and all(isinstance(one, str) for one in patterns)


GivenMode = Annotated[BufferMode, BeforeValidator(_checked)]
"""The field of a model with buffers."""

GivenModeOrNone = Annotated[BufferMode | None, BeforeValidator(_checked_or_none)]
"""The field of a model that may have none."""


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
