"""Federated training on tensors, without files, for notebooks and tests: `fedflat.simulate`."""

from collections.abc import Mapping, Sequence
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
from bench.methods.catalog import recipe
from bench.methods.recipe import Recipe


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

    A `UserError` if a method or hyper-parameter is unknown, a value is out of range, a client has no data, or a
    participant is not a client.
    """
    _check(clients, participants, local_steps, batch_size)
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
        sizes = [len(y) for _, y in clients]
        edges = np.cumsum([0, *sizes])
        split = [np.arange(a, b) for a, b in pairwise(edges)]
        data = DeviceData(
            torch.cat([x for x, _ in clients]).to(w0),
            torch.cat([y for _, y in clients]).to(w0.device),
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


def _check(
    clients: Sequence[tuple[Tensor, Tensor]],
    participants: Sequence[Sequence[int]],
    local_steps: int,
    batch_size: int | None,
) -> None:
    for t, active in enumerate(participants):
        if not active or len(set(active)) < len(active) or not set(active) <= set(range(len(clients))):
            raise UserError(
                f"participants of round {t} are {list(active)}: "
                f"they must be distinct ids 0 to {len(clients) - 1}, at least one"
            )
    for name, value in (("local_steps", local_steps), ("batch_size", batch_size)):
        if value is not None and value < 1:
            raise UserError(f"{name} is {value}: it must be at least 1")
    for i, (x, y) in enumerate(clients):
        if len(x) != len(y) or not len(y):
            raise UserError(f"client {i} has {len(x)} inputs and {len(y)} labels (allowed: equally many, at least one)")
