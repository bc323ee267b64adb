"""Arrays of an object that gives samples one by one, such as a torch `Dataset` or one of Hugging Face's `datasets`."""

import operator
from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from fedflat.bench.code.user_code import reason
from fedflat.bench.input.arguments import shown
from fedflat.bench.input.errors import UserError

LABELS = ("label", "labels", "target", "y")
"""The names of the label in a sample that is a mapping."""

PAIR = "a pair of input and label, or a mapping with two entries, of which one is named label, labels, target or y"


class GivesSamples(Protocol):
    """An object with a length, and with samples by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Any: ...


def gives_samples(data: object) -> TypeGuard[GivesSamples]:
    """Whether an object has a length and samples by number, and is no array, sequence or mapping itself."""
    has_items = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return has_items and not isinstance(data, Tensor | np.ndarray | tuple | list | Mapping | str | bytes)


def arrays_of(data: Any, name: str = "the data set") -> tuple[Tensor | NDArray[Any], Tensor | NDArray[Any]]:
    """Inputs `[n, ...]` and labels `[n]` of a data set, whose samples are read once, in the order of their numbers.

    A sample is a pair of input and label, or a mapping with two entries, of which one is named label, labels, target or
    y. An image of Pillow becomes uint8 `[channels, height, width]`. A `TensorDataset` gives its own tensors, which are
    not copied. A `UserError` that begins with `name` if a sample is something else, or differs from the first in shape.
    """
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return data.tensors[0], data.tensors[1]
    if not gives_samples(data) or not len(data):
        raise UserError(f"{name} is {shown(data)} (allowed: an object with a length and samples, at least one)")
    first, _ = _sample(data, 0, name)
    x, y = np.empty((len(data), *first.shape), first.dtype), np.empty(len(data), np.int64)
    for k in range(len(data)):
        own, y[k] = _sample(data, k, name) if k else (first, _)
        if own.shape != first.shape:
            raise UserError(
                f"{name}: the input of sample {k} has the shape {list(own.shape)}, but that of sample 0 "
                f"{list(first.shape)} (allowed: one shape; texts, for example, are filled up to one length)"
            )
        x[k] = own
    return x, y


def _sample(data: Any, k: int, name: str) -> tuple[NDArray[Any], int]:
    """Input and label of sample k. A `UserError` if they are something else."""
    try:
        given = data[k]
    except Exception as error:  # a user's data set may do anything
        raise UserError(f"{name}: sample {k} cannot be read: {reason(error)}") from None
    if isinstance(given, Mapping):
        keys = [key for key in LABELS if key in given]
        others = [key for key in given if key not in keys]
        given = (given[others[0]], given[keys[0]]) if len(keys) == len(others) == 1 else list(given)
    if not isinstance(given, tuple | list) or len(given) != 2:
        entries = f" with the entries {', '.join(map(str, given))}" if isinstance(given, list) else ""
        raise UserError(f"{name}: sample {k} is {shown(data[k])}{entries} (allowed: {PAIR})")
    try:
        return _array(given[0]), operator.index(given[1])
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: sample {k} has no input of numbers and label, a whole number: {error}") from None


def _array(value: Any) -> NDArray[Any]:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    array = np.asarray(value)
    if hasattr(value, "getbands"):  # an image of Pillow: rows, columns, channels
        array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    if array.dtype.hasobject or array.dtype.kind in "SU":
        raise ValueError(f"the input is {shown(value)}")
    return array
