"""The library's face for notebooks and tests: federated training on tensors, without files."""

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
from bench.engine.steps import Steps
from bench.input.errors import UserError
from bench.methods.catalog import recipe
from bench.methods.recipe import Recipe


@dataclass(frozen=True)
class SimulationResult:
    """`global_params`: the flat global parameters `[P]` after each round (order: `model.parameters()`);
    `history`: one row per round."""

    global_params: list[Tensor]
    history: pd.DataFrame


def simulate(
    method: str | Recipe,
    hyperparameters: Mapping[str, Any],
    model: nn.Module,
    clients: Sequence[tuple[Tensor, Tensor]],
    participants: Sequence[Sequence[int]],
    local_steps: int,
    lr: float,
    server_lr: float = 1.0,
    weight_decay: float = 0.0,
    aggregation: Literal["uniform", "samples"] | None = None,
    batch_size: int | None = None,
    lr_decay: float = 1.0,
    clip: float | None = None,
    prox_split: bool = False,
    seed: int = 0,
) -> SimulationResult:
    """Train a model federatedly on clients' tensors.

    `clients` are pairs (inputs `[n_i, ...]`, labels `[n_i]`), whose position is the client id; `participants` lists the
    active clients of each round; each runs `local_steps` steps, on its whole data if `batch_size` is None. The
    computation is in the model's number format, on the device where the model is; the model's own parameters are
    left as they are. A method is a name of the catalog, or a `Recipe`; hyper-parameters go by their canonical names.
    `aggregation` None means the method's own. With SWA, `global_params` holds the averages from their first model on.

    >>> import torch
    >>> from bench.engine.simulation import simulate
    >>> x, y = torch.randn(8, 3), torch.tensor([0, 1] * 4)
    >>> run = simulate("fedsam", {"rho": 0.1}, torch.nn.Linear(3, 2), [(x[:4], y[:4]), (x[4:], y[4:])],
    ...                participants=[[0, 1], [1]], local_steps=2, lr=0.1)
    >>> [tuple(w.shape) for w in run.global_params]
    [(8,), (8,)]

    Raises `UserError` for unknown methods or hyper-parameters, settings out of range, clients without data, and
    participants that are no clients.
    """
    for t, active in enumerate(participants):
        wrong = [i for i in active if not 0 <= i < len(clients)]
        if wrong or not active or len(set(active)) < len(active):
            raise UserError(
                f"participants of round {t} are {list(active)}: "
                f"they must be distinct ids 0 to {len(clients) - 1}, at least one"
            )
    for name, value in (("local_steps", local_steps), ("batch_size", 1 if batch_size is None else batch_size)):
        if value < 1:
            raise UserError(f"{name} is {value}: it must be at least 1")
    empty = [i for i, (x, y) in enumerate(clients) if len(y) == 0 or len(x) != len(y)]
    if empty:
        raise UserError(
            f"client {empty[0]} has {len(clients[empty[0]][0])} inputs and {len(clients[empty[0]][1])} labels"
        )
    built = (recipe(method) if isinstance(method, str) else method).build(hyperparameters)
    steps = Steps.parse(
        {
            "lr": lr,
            "lr_decay": lr_decay,
            "server_lr": server_lr,
            "weight_decay": weight_decay,
            "clip": clip,
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
        federation = Federation(built, objective, data, batch_sampler, sizes, steps, seed)
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
