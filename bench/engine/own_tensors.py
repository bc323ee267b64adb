"""A federation on tensors that a user gives, without files: what they must be, and how they become one."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from bench.data.dataset import DeviceData
from bench.engine.batches import BatchSampler, FullBatches, StepBatches
from bench.engine.federation import Federation
from bench.engine.objective import Objective
from bench.engine.step_settings import StepSettings
from bench.input.errors import UserError
from bench.input.user_code import reason
from bench.methods.base import Method

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def federation_on(
    method: Method,
    model: nn.Module,
    clients: Sequence[tuple[Tensor, Tensor]],
    step_settings: StepSettings,
    *,
    local_steps: int,
    batch_size: int | None,
    seed: int,
) -> Federation:
    """The federation of clients with inputs `[n_i, ...]` and labels `[n_i]`, in the model's number format and device.

    `batch_size` None: each of the `local_steps` uses all of a client's samples. The model's parameters become views of
    the federation's vectors. A `UserError` if the values do not fit each other.
    """
    check_model(model)
    _check_counts({"local_steps": local_steps, "batch_size": batch_size})
    for i, client in enumerate(clients):
        _check_tensors(f"client {i}", client)
        _check_shape(f"client {i}", client, clients[0])
    objective = Objective(model)
    _check_labels(objective, {f"client {i}": client for i, client in enumerate(clients)})
    w0 = objective.initial()
    sizes = [len(y) for _, y in clients]
    split = [np.arange(a, b) for a, b in pairwise(np.cumsum([0, *sizes]))]
    data = DeviceData(
        torch.cat([x for x, _ in clients]).to(w0),
        torch.cat([y for _, y in clients]).to(w0.device, torch.int64),
        torch.zeros((), dtype=w0.dtype, device=w0.device),
        torch.ones((), dtype=w0.dtype, device=w0.device),
    )
    batch_sampler: BatchSampler = (
        FullBatches(split, local_steps) if batch_size is None else StepBatches(split, local_steps, batch_size, seed)
    )
    return Federation(method, objective, data, batch_sampler, sizes, step_settings, seed)


def check_data(objective: Objective, name: str, data: tuple[Tensor, Tensor]) -> None:
    """A `UserError` if inputs and labels of this name do not fit each other or the objective's model."""
    _check_tensors(name, data)
    _check_labels(objective, {name: data})


def check_model(model: object) -> None:
    """A `UserError` if this is no module, for example the class of one."""
    if not isinstance(model, nn.Module):
        raise UserError(f"the model is {model!r} (allowed: an instance of torch.nn.Module)")


def _check_counts(counts: Mapping[str, object]) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int | np.integer) or value < 1):
            raise UserError(f"{name} is {value} (allowed: whole numbers of at least 1)")


def _check_tensors(name: str, data: object) -> None:
    """A `UserError` unless the data are finite inputs `[n, ...]` and whole numbers `[n]` as labels."""
    if not isinstance(data, tuple | list) or len(data) != 2 or not all(isinstance(part, Tensor) for part in data):
        kinds = [type(part).__name__ for part in (data if isinstance(data, tuple | list) else [data])]
        raise UserError(f"{name}: the data are {' and '.join(kinds)} (allowed: two tensors, inputs and labels)")
    x, y = data
    if not x.ndim or y.ndim != 1:
        raise UserError(
            f"{name}: labels have the shape {list(y.shape)}, inputs {list(x.shape)} (allowed: [n], [n, ...])"
        )
    if len(x) != len(y) or not len(y):
        raise UserError(f"{name} has {len(x)} inputs and {len(y)} labels (allowed: equally many, at least one)")
    if not x.isfinite().all():
        raise UserError(f"{name}: inputs contain NaN or infinite values (allowed: finite numbers)")


def _check_shape(name: str, data: tuple[Tensor, Tensor], first: tuple[Tensor, Tensor]) -> None:
    given, expected = (list(x.shape[1:]) for x, _ in (data, first))
    if given != expected:
        raise UserError(f"{name}: an input has the shape {given} (allowed: {expected}, as for client 0)")


def _check_labels(objective: Objective, named: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """A `UserError` unless the labels are class numbers of the model's scores."""
    x, _ = next(iter(named.values()))
    try:
        with torch.no_grad():
            scores = deepcopy(objective.module)(x[:2].to(objective.initial()))  # a copy: modules may record calls
            shape = list(scores.shape)
    except Exception as error:  # a user-defined model may fail in any way
        raise UserError(f"the model fails for inputs of the shape {list(x[:2].shape)}: {reason(error)}") from None
    if len(shape) != 2 or shape[0] != len(x[:2]) or shape[1] < 2:
        raise UserError(
            f"the model maps inputs {list(x[:2].shape)} to scores {shape} "
            f"(allowed: [{len(x[:2])}, number of classes], with at least two classes)"
        )
    allowed = f"(allowed: integers 0 to {shape[1] - 1})"
    for name, (_, y) in named.items():
        if y.dtype not in _INTEGERS:
            raise UserError(f"{name}: labels have dtype {str(y.dtype).removeprefix('torch.')} {allowed}")
        if y.min() < 0 or y.max() >= shape[1]:
            raise UserError(f"{name}: labels are {y.min()} to {y.max()} {allowed}")
