"""Convolutions of images of few channels, and of signals, as matrix products.

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
    """In this context, `conv1d`, and `conv2d` of few channels, is a product of the weights and a matrix of columns.

    Other operations are unchanged: so are `conv2d` of at least `MULTIPLE` channels, and convolutions in groups, with
    dilation, or with padding by name.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        rewritten = {torch.conv2d: _convolution, torch.conv1d: _convolution_of_signals}.get(func)
        if rewritten is not None:
            product = rewritten(*args, **(kwargs or {}))
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


def _convolution_of_signals(
    input: Tensor,  # noqa: A002 - the name of torch's argument
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor | None:
    """`[B, O, length]` for x `[B, C, T]` and weights `[O, C, k]`; None for other convolutions.

    One product for all signals, because a CPU's library takes longer to start many short products than to compute them.
    """
    if groups != 1 or isinstance(padding, str) or _single(dilation) != 1 or input.ndim != 3:
        return None
    kind = input.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        input = input.to(torch.get_autocast_dtype(kind))  # noqa: A001 - before it is copied several times
    columns: Tensor = _ColumnsOfSignals.apply(  # type: ignore[no-untyped-call]
        input, weight.shape[2], _single(stride), _single(padding)
    )
    out = (weight.flatten(1) @ columns.flatten(0, 1).flatten(1)).view(len(weight), len(input), -1).transpose(0, 1)
    return out if bias is None else out + bias.to(out.dtype)[:, None]


class _ColumnsOfSignals(torch.autograd.Function):
    """The columns `[C, k, B, length]` of all signals `[B, C, T]`; its own gradient, for the reason of `_Columns`.

    Each place of the kernel is one copy, which leaves out the zeros beside the signals.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
        samples, channels, length = x.shape
        positions = (length + 2 * padding - kernel) // stride + 1
        columns = x.new_zeros(channels, kernel, samples, positions)
        for place in range(kernel):
            at, inside = _covered(place, length, stride, padding, positions)
            columns[:, place, :, at] = x[:, :, inside].transpose(0, 1)
        return columns

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.kernel, ctx.stride, ctx.padding = inputs
        ctx.length = x.shape[2]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        channels, kernel, samples, positions = grad.shape
        x = grad.new_zeros(channels, samples, ctx.length)
        for place in range(kernel):
            at, inside = _covered(place, ctx.length, ctx.stride, ctx.padding, positions)
            x[:, :, inside] += grad[:, place, :, at]
        return x.transpose(0, 1), None, None, None


def _covered(place: int, length: int, stride: int, padding: int, positions: int) -> tuple[slice, slice]:
    """The positions of the kernel at which one of its places is on the signal, and the numbers that it covers there."""
    first = max(0, -((place - padding) // stride))
    last = min(positions - 1, (length - 1 + padding - place) // stride)
    begin = first * stride + place - padding
    return slice(first, last + 1), slice(begin, begin + max(0, (last - first) * stride + 1), stride)


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


def _single(value: int | Pair) -> int:
    return value if isinstance(value, int) else value[0]


def _pair(value: int | Pair) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return tuple(value) if len(value) == 2 else (value[0], value[0])  # type: ignore[return-value]
