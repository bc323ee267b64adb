"""A federation on tensors that a user gives, without files: what they must be, and how they become one."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.code.user_code import reason
from bench.data.dataset import DeviceData, Samples
from bench.data.partitions.base import Indices, Partition
from bench.engine.batches import LocalSteps
from bench.engine.federation import Federation
from bench.engine.objective import Objective
from bench.engine.step_settings import StepSettings
from bench.input.bounds import check_count
from bench.input.errors import UserError
from bench.methods.base import Method
from bench.models.user_model import trained_parameters
from bench.numerics.streams import numpy_stream

OwnArray = Tensor | NDArray[Any]
OwnSamples = tuple[OwnArray, OwnArray]
"""Inputs `[n, ...]` and labels `[n]`."""

_INTEGERS = {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}


@dataclass(frozen=True)
class OwnData:
    """The inputs `[n, ...]` and labels `[n]` of all clients, and the indices of each client's samples."""

    x: Tensor
    y: Tensor
    split: Sequence[Indices]

    @classmethod
    def of_clients(cls, objective: Objective, clients: Sequence[object]) -> "OwnData":
        """From the inputs and labels of each client. A `UserError` if they do not fit each other, or the model."""
        given = {f"client {i}": own_samples(f"client {i}", client) for i, client in enumerate(clients)}
        if not given:
            raise UserError("clients is empty (allowed: inputs and labels of at least one client)")
        for name, (x, _) in given.items():
            _check_shape(name, x, given["client 0"][0])
        _check_labels(objective, given)
        edges = np.cumsum([0, *(len(y) for _, y in given.values())])
        x, y = (torch.cat(parts) for parts in zip(*given.values(), strict=True))
        return cls(x, y, [np.arange(a, b) for a, b in pairwise(edges)])

    @classmethod
    def partitioned(cls, objective: Objective, data: object, partition: Partition, seed: int) -> "OwnData":
        """From all inputs and labels, divided as in a run with this partition and seed; a `UserError` as above."""
        x, y = own_samples("clients", data)
        _check_labels(objective, {"clients": (x, y)})
        samples = Samples(np.empty((len(y), 0), np.uint8), y.cpu().numpy())  # partitions look at labels only
        return cls(x, y, partition.split(samples, numpy_stream(seed, "partition")))


def check_model(model: object) -> None:
    """A `UserError` if this is no module, for example the class of one, or if none of its parameters is trained."""
    if not isinstance(model, nn.Module):
        raise UserError(f"the model is {model!r} (allowed: an instance of torch.nn.Module)")
    trained_parameters(model)


def federation_on(
    method: Method,
    objective: Objective,
    data: OwnData,
    step_settings: StepSettings,
    local_steps: LocalSteps,
    seed: int,
    rounds: int | None = None,
) -> Federation:
    """The federation of the clients, in the model's number format and on its device."""
    w0 = objective.initial()
    device_data = DeviceData(
        data.x.to(w0),
        data.y.to(w0.device),
        torch.zeros((), dtype=w0.dtype, device=w0.device),
        torch.ones((), dtype=w0.dtype, device=w0.device),
    )
    sizes = [len(own) for own in data.split]
    sampler = local_steps.sampler(data.split, seed)
    return Federation(method, objective, device_data, sampler, sizes, step_settings, seed, rounds=rounds)


def own_batches(objective: Objective, name: str, data: object, batch_size: int) -> list[tuple[Tensor, Tensor]]:
    """Batches of inputs and labels with this name, on the model's device; a `UserError` if they do not fit it."""
    x, y = own_samples(name, data)
    _check_labels(objective, {name: (x, y)})
    check_count("batch_size", batch_size)
    w = objective.initial()
    return list(zip(x.to(w).split(batch_size), y.to(w.device).split(batch_size), strict=True))


def own_samples(name: str, data: object) -> tuple[Tensor, Tensor]:
    """Inputs `[n, ...]` and labels `[n]` as tensors, from tensors or NumPy arrays.

    A `UserError` unless inputs are finite numbers and labels are whole numbers.
    """
    parts: Sequence[Any] = data if isinstance(data, tuple | list) else [data]
    if len(parts) != 2 or not all(isinstance(part, Tensor | np.ndarray) for part in parts):
        kinds = " and ".join(type(part).__name__ for part in parts[:4])
        raise UserError(f"{name}: the data are {kinds} (allowed: two tensors or NumPy arrays, inputs and labels)")
    x, y = (_tensor(name, part) for part in parts)
    if not x.ndim or y.ndim != 1:
        raise UserError(
            f"{name}: labels have the shape {list(y.shape)}, inputs {list(x.shape)} (allowed: [n], [n, ...])"
        )
    if len(x) != len(y) or not len(y):
        raise UserError(f"{name} has {len(x)} inputs and {len(y)} labels (allowed: equally many, at least one)")
    if not x.isfinite().all():
        raise UserError(f"{name}: inputs contain NaN or infinite values (allowed: finite numbers)")
    if y.dtype not in _INTEGERS:
        raise UserError(f"{name}: labels have dtype {str(y.dtype).removeprefix('torch.')} (allowed: integers from 0)")
    return x, y.long()


def _tensor(name: str, part: OwnArray) -> Tensor:
    """The same numbers as a tensor, which shares the memory of an array if it can be written."""
    if isinstance(part, Tensor):
        return part.detach()
    try:
        return torch.from_numpy(part if part.flags.writeable else part.copy())
    except (TypeError, ValueError):  # text, objects; other byte orders or negative strides
        kind = part.dtype.kind
        if kind in "fiub":
            return torch.from_numpy(part.astype(part.dtype.newbyteorder("=")))
        raise UserError(f"{name}: an array has dtype {part.dtype} (allowed: numbers)") from None


def _check_shape(name: str, x: Tensor, first: Tensor) -> None:
    given, expected = list(x.shape[1:]), list(first.shape[1:])
    if given != expected:
        raise UserError(f"{name}: an input has the shape {given} (allowed: {expected}, as for client 0)")


def _check_labels(objective: Objective, named: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """A `UserError` unless the labels are class numbers of the model's scores."""
    which, (x, _) = next(iter(named.items()))
    try:
        with torch.no_grad():
            copy = deepcopy(objective.module).eval()  # modules may record calls
            scores = copy(x[:2].to(objective.initial()))
            shape = list(scores.shape)
    except Exception as error:  # a user-defined model may fail in any way
        raise UserError(
            f"{which}: the model fails for inputs of the shape {list(x[:2].shape)}: {reason(error)}"
        ) from None
    if len(shape) != 2 or shape[0] != len(x[:2]) or shape[1] < 2:
        raise UserError(
            f"{which}: the model maps inputs {list(x[:2].shape)} to scores {shape} "
            f"(allowed: [{len(x[:2])}, number of classes], with at least two classes)"
        )
    allowed = f"(allowed: integers 0 to {shape[1] - 1})"
    for name, (_, y) in named.items():
        if y.min() < 0 or y.max() >= shape[1]:
            raise UserError(f"{name}: labels are {y.min()} to {y.max()} {allowed}")
