"""Convolutions of few channels, such as those of images, as matrix products.

out[b, :, i, j] = W · column(b, i, j),  where a column has the numbers of x that the kernel covers at this position
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Pair = Sequence[int]

MULTIPLE = 8
"""NVIDIA's matrix units compute 8 numbers of 16 bits at once. Their libraries' convolutions are slow with fewer
channels, and their products with rows of another length."""


class Im2col(TorchFunctionMode):
    """In this context, `conv2d` of few channels is a product of the weights and a matrix of columns.

    Other operations are unchanged: so are convolutions of at least `MULTIPLE` channels, in groups, and with dilation or
    padding by name.
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
    if weight.shape[1] >= MULTIPLE:
        return None
    (k, m), (down, right), (rows, columns) = weight.shape[2:], _pair(stride), _pair(padding)
    x = F.pad(input, (columns, columns, rows, rows))
    kind = x.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))  # before it is copied many times
    height, width = (x.shape[2] - k) // down + 1, (x.shape[3] - m) // right + 1
    matrices: Tensor = _Columns.apply(x, (k, m), (down, right))  # type: ignore[no-untyped-call]
    flat = weight.flatten(1)
    flat = F.pad(flat, (0, matrices.shape[1] - flat.shape[1]))
    # A product per image: the gradient of W is then a sum of many short products, which are computed side by side.
    product: Tensor = flat.expand(len(x), -1, -1) @ matrices
    out = product.view(*product.shape[:2], height, width)
    return out if bias is None else out + bias.to(out.dtype)[:, None, None]  # as conv2d under autocast


class _Columns(torch.autograd.Function):
    """The matrices `[B, C·k·l, height·width]` of columns, with zeros below up to a multiple of rows.

    Its own gradient, because vmap would compute the gradients of windows one client after the other, and torch's unfold
    would gather columns one image after the other on a GPU.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Tensor:
        windows = x.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])  # [B, C, height, width, k, l]
        columns = windows.permute(0, 1, 4, 5, 2, 3)
        count = columns.shape[1:4].numel()
        places = x.new_zeros(len(x), -(-count // MULTIPLE) * MULTIPLE, columns.shape[4:].numel())
        places[:, :count].view(columns.shape).copy_(columns)
        return places

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.kernel, ctx.stride = inputs
        ctx.count = x.shape[1] * ctx.kernel[0] * ctx.kernel[1]
        ctx.size = tuple(x.shape[2:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return F.fold(grad[:, : ctx.count], ctx.size, ctx.kernel, stride=ctx.stride), None, None


def _pair(value: int | Pair) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return tuple(value) if len(value) == 2 else (value[0], value[0])  # type: ignore[return-value]
