"""Federated training on tensors, without files, for notebooks and tests: `fedflat.simulate`."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from bench.data.dataset import DeviceData
from bench.engine.batches import BatchSampler, FullBatches, StepBatches
from bench.engine.federation import Federation
from bench.engine.objective import Objective
from bench.engine.step_settings import StepSettings
from bench.input.errors import UserError
from bench.input.user_code import reason
from bench.methods.catalog import recipe
from bench.methods.recipe import Recipe

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class SimulationResult:
    """The global models and measurements of a simulation."""

    global_params: list[Tensor]
    """The flat global parameters `[P]` after each round, in the order of `model.parameters()`."""
    history: pd.DataFrame
    """One row per round."""


def simulate(
    method: str | Recipe,
    model: nn.Module,
    clients: Sequence[tuple[Tensor, Tensor]],
    participants: Sequence[Sequence[int]],
    *,
    local_steps: int,
    lr: float,
    hyperparameters: Mapping[str, Any] | None = None,
    server_lr: float = 1.0,
    weight_decay: float = 0.0,
    aggregation: Literal["uniform", "samples"] | None = None,
    batch_size: int | None = None,
    lr_decay: float = 1.0,
    clip: float | None = None,
    local_momentum: float | None = None,
    prox_split: bool = False,
    seed: int = 0,
) -> SimulationResult:
    """Train a model on the tensors of several clients with a federated method.

    - `method`: a name of the catalog (`fedflat methods` lists them), or a `Recipe`.
    - `model`: a module that maps inputs `[B, ...]` to class scores `[B, classes]`; its parameters are the start.
    - `clients`: inputs `[n_i, ...]` and labels `[n_i]` (class numbers from 0) of each client. A client's id is its
      position in the sequence.
    - `participants`: the ids of the active clients, for each round; its length is the number of rounds.
    - `local_steps`: number of steps of an active client per round, at least 1.
    - `lr`: local learning rate in the first round.
    - `hyperparameters`: values by name; hyper-parameters that are not given have their defaults. None: no values.
    - `server_lr`: learning rate of the server.
    - `weight_decay`: ω in the local step w ← w − η (clip(q) + ω w), where q is the method's direction.
    - `aggregation`: weights of the active clients in the mean: by numbers of `samples`, or `uniform`. None: the weights
      that the method defines.
    - `batch_size`: samples per local step, from shuffled passes over the client's data. None: all its samples.
    - `lr_decay`: factor by which the local learning rate is multiplied after each round.
    - `clip`: largest norm of q; longer directions are scaled down to it. None: no clipping.
    - `local_momentum`: heavy-ball momentum μ of local steps as in `torch.optim.SGD`: b ← μ b + clip(q) + ω w and
      w ← w − η b. The buffer b starts at zero in each round. None: no momentum.
    - `prox_split`: whether the term λw of a proximal method is added to the weight decay, and so not clipped.
    - `seed`: seed of the mini-batches and of a method's random numbers; the initial model does not depend on it.

    The simulation uses the model's number format and device; the model is not changed. With SWA, `global_params` are
    the averages as soon as an average exists.

    >>> import fedflat, torch
    >>> x, y = torch.randn(8, 3), torch.tensor([0, 1] * 4)
    >>> clients = [(x[:4], y[:4]), (x[4:], y[4:])]
    >>> result = fedflat.simulate("fedsam", torch.nn.Linear(3, 2), clients, participants=[[0, 1], [1]],
    ...                           local_steps=2, lr=0.1, hyperparameters={"rho": 0.1})
    >>> [tuple(w.shape) for w in result.global_params]
    [(8,), (8,)]
    >>> result.history["round"].tolist()
    [1, 2]

    A `UserError` if a method or hyper-parameter is unknown, a value is out of range, a client has no data or data that
    do not fit the model, or a participant is not a client.
    """
    check_model(model)
    _check_counts({"local_steps": local_steps, "batch_size": batch_size})
    for i, client in enumerate(clients):
        _check_tensors(f"client {i}", client)
        _check_shape(f"client {i}", client, clients[0])
    _check_participants(participants, len(clients))
    built = (recipe(method) if isinstance(method, str) else method).build(hyperparameters or {})
    step_settings = StepSettings.parse(
        {
            "lr": lr,
            "lr_decay": lr_decay,
            "server_lr": server_lr,
            "weight_decay": weight_decay,
            "clip": clip,
            "local_momentum": local_momentum,
            "prox_split": prox_split,
            "aggregation": aggregation,
        }
    )
    before = [p.data for p in model.parameters()]
    objective = Objective(model)
    try:
        w0 = objective.initial()
        _check_labels(objective, {f"client {i}": client for i, client in enumerate(clients)})
        sizes = [len(y) for _, y in clients]
        edges = np.cumsum([0, *sizes])
        split = [np.arange(a, b) for a, b in pairwise(edges)]
        data = DeviceData(
            torch.cat([x for x, _ in clients]).to(w0),
            torch.cat([y for _, y in clients]).to(w0.device, torch.int64),
            torch.zeros((), dtype=w0.dtype, device=w0.device),
            torch.ones((), dtype=w0.dtype, device=w0.device),
        )
        batch_sampler: BatchSampler = (
            FullBatches(split, local_steps) if batch_size is None else StepBatches(split, local_steps, batch_size, seed)
        )
        federation = Federation(built, objective, data, batch_sampler, sizes, step_settings, seed)
        state = federation.start(w0)
        params: list[Tensor] = []
        rows: list[dict[str, float]] = []
        for active in participants:
            state, measured = federation.run_round(state, active)
            params.append(federation.evaluated(state))
            rows.append({"round": state.round, **measured})
    finally:
        for parameter, data_before in zip(model.parameters(), before, strict=True):
            parameter.data = data_before
    return SimulationResult(params, pd.DataFrame(rows))


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


def _check_participants(participants: Sequence[Sequence[int]], clients: int) -> None:
    if not isinstance(participants, Sequence) or not all(isinstance(active, Sequence) for active in participants):
        raise UserError(f"participants = {participants} (allowed: for each round a list of ids, such as [[0, 1], [1]])")
    for t, active in enumerate(participants):
        if not active or len(set(active)) < len(active) or not set(active) <= set(range(clients)):
            raise UserError(
                f"participants of round {t} are {list(active)}: "
                f"they must be distinct ids 0 to {clients - 1}, at least one"
            )


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
