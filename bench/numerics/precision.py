"""The number format in which networks are evaluated; parameters, gradients and norms are always float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from bench.input.errors import UserError

Precision = Literal["fp32", "tf32", "bf16"]
"""`tf32`: NVIDIA's matrix units with 10 bits of mantissa; `bf16`: torch's autocast, master weights in float32."""


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context of a forward pass: with bf16, bfloat16 for the operations that allow it."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def prepare_precision(precision: Precision, device: torch.device) -> None:
    """Configure torch for this precision; a `UserError` for tf32 on a CPU, which does not have it.

    On a CPU, bf16 is fast only with AVX-512 or AMX, and slow otherwise.
    """
    if precision == "tf32" and device.type != "cuda":
        raise UserError("precision tf32 exists on NVIDIA GPUs only (allowed here: fp32, bf16)")
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
