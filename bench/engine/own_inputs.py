"""Inputs and labels that a user gives as tensors or arrays: which are allowed, and how they become those of a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedflat.bench.data.dataset import DeviceData, shared_tensor
from fedflat.bench.data.items import GivesSamples, arrays_of, gives_samples
from fedflat.bench.data.moments import SCALE, PixelSums, shift_and_factor
from fedflat.bench.data.own_arrays import unmasked
from fedflat.bench.input.arguments import shown
from fedflat.bench.input.errors import UserError
from fedflat.bench.models.user_model import FLOATS, unusual

OwnArray = Tensor | NDArray[Any]
OwnSamples = tuple[OwnArray, OwnArray] | GivesSamples
"""Inputs `[n, ...]` and labels `[n]`; or an object that gives samples."""

_SIGNED, _UNSIGNED = ({getattr(torch, f"{sign}int{bits}") for bits in (8, 16, 32, 64)} for sign in ("", "u"))
_INTEGERS = _SIGNED | _UNSIGNED


@dataclass(frozen=True)
class Inputs:
    """How inputs of one kind and `shape` become those of a model.

    uint8 is normalised by (x − `shift`) · `factor`, other numbers stay. `shape` is that of a sample.
    """

    kind: str
    shape: tuple[int, ...]
    shift: Tensor | None = None
    factor: Tensor | None = None

    @classmethod
    def of(cls, x: Tensor) -> "Inputs":
        """With mean and deviation of the training inputs x `[n, ...]`, as for an npz file."""
        if x.dtype != torch.uint8:
            return cls(_kind(x), tuple(x.shape[1:]))
        sums = PixelSums()
        sums.add(x.cpu().numpy())
        return cls(_kind(x), tuple(x.shape[1:]), *shift_and_factor(*sums.moments(), SCALE, x.ndim - 1))

    def check(self, name: str, x: Tensor) -> None:
        """A `UserError` if a sample has another shape, or another kind of numbers."""
        _check_like(name, x, self.shape, self.kind)

    @property
    def hint(self) -> str:
        """What may help if a model fails for these inputs."""
        return _HINTS.get(self.kind, "")

    def on(self, name: str, x: Tensor, y: Tensor, w: Tensor) -> DeviceData:
        """Samples with this name on the device of a model w `[P]`; a `UserError` if their numbers do not fit it."""
        if x.dtype == torch.uint8:
            assert self.shift is not None
            assert self.factor is not None
            return DeviceData(x.to(w.device), y.to(w.device), self.shift.to(w), self.factor.to(w))
        x = in_format_of(w, name, x)
        return DeviceData(x, y.to(w.device), x.new_zeros(()), x.new_ones(()))

    def __call__(self, x: OwnArray, w: Tensor) -> Tensor:
        """Inputs `[n, ...]` as a model w `[P]` receives them; a `UserError` if kind or shape are others."""
        own = own_inputs("x", x)
        self.check("x", own)
        data = self.on("x", own, torch.zeros(len(own), dtype=torch.long), w)
        return data.inputs(data.images)


def own_samples(name: str, data: object) -> tuple[Tensor, Tensor]:
    """Inputs `[n, ...]` and labels `[n]` as tensors, from tensors, NumPy arrays or a data set; labels in int64.

    A `UserError` unless inputs are bytes (uint8), whole numbers, or finite numbers, and labels are whole numbers.
    """
    if gives_samples(data):
        data = arrays_of(data, name)
    parts: Sequence[Any] = data if isinstance(data, tuple | list) else [data]
    if len(parts) != 2 or not all(isinstance(part, Tensor | np.ndarray) for part in parts):
        kinds = " and ".join(type(part).__name__ for part in parts[:4])
        raise UserError(
            f"{name}: the data are {kinds} (allowed: two tensors or NumPy arrays, inputs and labels; "
            "or a data set that gives samples, such as a torch Dataset)"
        )
    x, y = own_inputs(name, parts[0]), _labels(name, _tensor(name, parts[1]))
    if y.ndim != 1:
        raise UserError(
            f"{name}: labels have the shape {list(y.shape)}, inputs {list(x.shape)} (allowed: [n], [n, ...])"
        )
    if len(x) != len(y):
        raise UserError(f"{name} has {len(x)} inputs and {len(y)} labels (allowed: equally many, at least one)")
    return x, y


def own_inputs(name: str, part: OwnArray) -> Tensor:
    """Inputs `[n, ...]` as a tensor: as they are, but whole numbers without a sign, apart from bytes, in int64."""
    x = _tensor(name, part)
    if x.ndim < 2 or 0 in x.shape:
        raise UserError(f"{name}: inputs have the shape {list(x.shape)} (allowed: [n, ...], at least one sample)")
    if x.dtype == torch.uint8 or x.dtype in _SIGNED:
        return x
    if x.dtype in _INTEGERS:
        return _in_int64(name, "inputs", x)
    if x.dtype not in FLOATS:
        kind = dtype_name(x.dtype)
        raise UserError(f"{name}: inputs have the dtype {kind} (allowed: uint8, whole or floating-point numbers)")
    if not _all_finite(x):
        raise UserError(f"{name}: inputs contain NaN or infinite values (allowed: finite numbers)")
    return x


def _all_finite(x: Tensor) -> bool:
    """Whether all numbers are finite; in parts, because the test of all would take twice their memory."""
    return all(bool(part.isfinite().all()) for part in x.split(1000))


def _labels(name: str, values: Tensor) -> Tensor:
    """Labels in int64; a `UserError` unless they are whole numbers."""
    if values.dtype not in _INTEGERS:
        raise UserError(f"{name}: labels have the dtype {dtype_name(values.dtype)} (allowed: integers from 0)")
    return _in_int64(name, "labels", values)


def _in_int64(name: str, what: str, values: Tensor) -> Tensor:
    """Whole numbers in int64; a `UserError` if it cannot hold one."""
    own = values.long()
    if values.dtype == torch.uint64 and len(own) and own.min() < 0:
        raise UserError(f"{name}: {what} have numbers of 2**63 or more (allowed: those that int64 holds)")
    return own


def in_format_of(w: Tensor, name: str, x: Tensor) -> Tensor:
    """Inputs on the model's device, floating-point numbers in its number format; a `UserError` if one is beyond it."""
    if not x.is_floating_point():
        return x.to(w.device)
    own = x.to(w)
    if own.dtype != x.dtype and not _all_finite(own):
        raise UserError(
            f"{name}: inputs have values beyond {dtype_name(w.dtype)}, the number format of the model "
            f"(allowed: at most {torch.finfo(w.dtype).max:.3g})"
        )
    return own


def dtype_name(dtype: torch.dtype) -> str:
    """For messages, such as float32."""
    return str(dtype).removeprefix("torch.")


def _tensor(name: str, part: OwnArray) -> Tensor:
    """The same numbers as a tensor, which shares the memory of an array if torch knows its format."""
    if isinstance(part, Tensor):
        if problem := unusual(part):
            raise UserError(f"{name}: a tensor {problem} (allowed: dense tensors with values)")
        return part.detach()
    if not isinstance(part, np.ndarray):
        raise UserError(f"{name}: the inputs are {shown(part)} (allowed: a tensor or a NumPy array)")
    part = unmasked(f"{name}: an array", part)
    if part.dtype.kind == "f" and part.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # reported as infinite
            part = part.astype(np.float64)
    try:
        return shared_tensor(part)
    except (TypeError, ValueError):  # text, objects; other byte orders or negative strides
        kind = part.dtype.kind
        if kind in "fiub":
            return torch.from_numpy(part.astype(part.dtype.newbyteorder("=")))
        raise UserError(f"{name}: an array has the dtype {part.dtype} (allowed: numbers)") from None


def check_like_first(name: str, x: Tensor, first: Tensor) -> None:
    """A `UserError` if a sample has another shape, or another kind of numbers, than the first client's."""
    _check_like(name, x, first.shape[1:], _kind(first))


def _check_like(name: str, x: Tensor, shape: Sequence[int], kind: str) -> None:
    given = list(x.shape[1:])
    if given != list(shape):
        raise UserError(f"{name}: an input has the shape {given} (allowed: {list(shape)}, as for client 0)")
    if _kind(x) != kind:
        raise UserError(f"{name}: inputs have the dtype {dtype_name(x.dtype)} (allowed: {kind}, as for client 0)")


_BYTES, _WHOLE = "uint8", "whole numbers"
_HINTS = {
    _BYTES: " (bytes are normalised; token ids are x.long(), or x.astype('int64') of an array)",
    _WHOLE: " (whole numbers stay whole numbers; features are x.float())",
}


def _kind(x: Tensor) -> str:
    if x.dtype == torch.uint8:
        return _BYTES
    return "floating-point numbers" if x.is_floating_point() else _WHOLE
