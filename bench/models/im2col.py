"""Convolutions as matrix products. Per-client weights then give one batched product instead of a grouped convolution.

out[:, b, i, j] = W · column(b, i, j),  where a column has the numbers of x that the kernel covers at this position
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Pair = Sequence[int]


class Im2col(TorchFunctionMode):
    """In this context, `conv2d` is a product of the weights and a matrix of columns; other operations are unchanged.

    So are convolutions in groups, and with dilation or padding by name.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.conv2d:
            product = _convolution(*args, **(kwargs or {}))
            if product is not None:
                return product
        return func(*args, **(kwargs or {}))


def _convolution(
    input: Tensor,  # noqa: A002 - the name of torch's argument
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor | None:
    """`[B, O, height, width]` for x `[B, C, ...]` and weights `[O, C, k, l]`; None for other convolutions."""
    if groups != 1 or isinstance(padding, str) or _pair(dilation) != (1, 1) or input.ndim != 4:
        return None
    (k, m), (down, right), (rows, columns) = weight.shape[2:], _pair(stride), _pair(padding)
    x = F.pad(input, (columns, columns, rows, rows))
    height, width = (x.shape[2] - k) // down + 1, (x.shape[3] - m) // right + 1
    matrix: Tensor = _Columns.apply(x, (k, m), (down, right))  # type: ignore[no-untyped-call]
    out = (weight.flatten(1) @ matrix).view(len(weight), len(x), height, width).transpose(0, 1)
    return out if bias is None else out + bias.to(out.dtype)[:, None, None]  # as conv2d under autocast


class _Columns(torch.autograd.Function):
    """The matrix `[C·k·l, B·height·width]` of columns.

    Its own gradient, because vmap would compute the gradients of windows one client after the other, and torch's unfold
    would gather columns one image after the other on a GPU.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Tensor:
        windows = x.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])  # [B, C, height, width, k, l]
        return windows.permute(1, 4, 5, 0, 2, 3).reshape(x.shape[1] * kernel[0] * kernel[1], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.kernel, ctx.stride = inputs
        ctx.batch, ctx.size = len(x), tuple(x.shape[2:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        columns = grad.unflatten(1, (ctx.batch, -1)).transpose(0, 1)
        return F.fold(columns, ctx.size, ctx.kernel, stride=ctx.stride), None, None


def _pair(value: int | Pair) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return tuple(value) if len(value) == 2 else (value[0], value[0])  # type: ignore[return-value]
