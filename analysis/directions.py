"""Random directions in parameter space that compared models share."""

from collections.abc import Iterator

import torch
from torch import Tensor

from bench.errors import UserError


def gaussian_directions(w: Tensor, draws: int, stream: torch.Generator) -> Iterator[Tensor]:
    """`draws` standard normal vectors `[P]`, one at a time, on the device and in the number format of w.

    The stream is read, not advanced: equal streams give equal directions for every model of this size.
    Drawn in float32 on the CPU, so that neither the device nor the number format changes them.
    """
    if draws < 1:
        raise UserError(f"{draws} random directions (allowed: 1 or more)")
    generator = stream.clone_state()
    for _ in range(draws):
        yield torch.randn(w.numel(), generator=generator, dtype=torch.float32).to(w)
