"""The number format in which networks are evaluated; parameters, gradients and norms are float32 or float64."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Literal

import torch
from torch import Tensor, nn

from fedflat.bench.input.errors import UserError

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


_HALF = (torch.float16, torch.bfloat16)


def check_not_half(parameters: Iterable[Tensor]) -> None:
    """A `UserError` if trained parameters have 16 bits.

    Small steps would be lost in their rounding; in float16, 1e-12 is 0, and norms above 65,504 are infinite.
    """
    if found := next((p.dtype for p in parameters if p.dtype in _HALF), None):
        raise UserError(
            f"the model's parameters are in {str(found).removeprefix('torch.')}, whose rounding would lose small steps "
            "(allowed: float32 or float64, such as model.float(); training.precision=bf16 of an experiment computes "
            "passes in bf16 and keeps the parameters in float32)"
        )


def at_least_single(module: nn.Module) -> nn.Module:
    """The same module; if trained parameters have 16 bits, its tensors of 16 bits are now exact copies in float32.

    Otherwise frozen parts may have 16 bits: the module itself converts what they receive, and float32 would not fit.
    """
    if any(p.requires_grad and p.dtype in _HALF for p in module.parameters()):
        for tensor in chain(module.parameters(), module.buffers()):
            if tensor.dtype in _HALF:
                tensor.data = tensor.data.float()
    return module
