"""Part of the Python API: federated training on the user's tensors, without files."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor, nn

from bench.engine.federation import Federation, FederationState
from bench.engine.local import LocalWork
from bench.engine.own_tensors import check_model, federation_on
from bench.engine.settings import EngineSettings
from bench.engine.step_settings import StepSettings
from bench.input.errors import UserError
from bench.methods.catalog import recipe
from bench.methods.recipe import Recipe
from bench.training.calibration import choose_engine, is_small, unmeasured
from bench.training.engine import Engine
from bench.training.engine_choice import EngineChoice

_LOG = logging.getLogger("fedflat.simulate")


@dataclass(frozen=True)
class SimulationResult:
    """The global models and measurements of a simulation."""

    global_params: list[Tensor]
    """The flat global parameters `[P]` after each round, in the order of `model.parameters()`."""
    history: pd.DataFrame
    """One row per round."""
    engine: EngineChoice
    """How the first round was computed. `simulate` with this `engine` gives the same bits."""


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
    engine: str | EngineChoice = "auto",
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
    - `engine`: back end, which changes speed, and numbers by rounding only: `loop`, `parallel`, `cohort` or `graph` as
      `engine.backend` of an experiment, or a result's `engine`. `auto`: the fastest one for this simulation on this
      machine, measured once, if the simulation is long enough to gain by a measurement, else `loop`.

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
    with _given_back(model):
        federation = federation_on(
            built, model, clients, step_settings, local_steps=local_steps, batch_size=batch_size, seed=seed
        )
        state = federation.start(federation.objective.initial())
        simulation = _Simulation(federation, participants, local_steps, batch_size, _settings(engine))
        choice = simulation.given(engine) if isinstance(engine, EngineChoice) else simulation.choice(state)
        rounds = Engine([federation.objective], choice, simulation.engine.backend, _log)
        params: list[Tensor] = []
        rows: list[dict[str, float]] = []
        for _ in participants:
            works = simulation.work(state)
            results = rounds.train(federation.local, works)
            state, measured = federation.aggregate(state, works, results)
            params.append(federation.evaluated(state))
            rows.append({"round": state.round, **measured.numbers()})
    return SimulationResult(params, pd.DataFrame(rows), choice)


@contextmanager
def _given_back(model: nn.Module) -> Iterator[None]:
    """Restores the model's parameters, and the number of threads, at the end."""
    before, threads = [p.data for p in model.parameters()], torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        for parameter, data in zip(model.parameters(), before, strict=True):
            parameter.data = data


@dataclass(frozen=True)
class _Simulation:
    """What calibration needs to know."""

    federation: Federation
    participants: Sequence[Sequence[int]]
    local_steps: int
    batch_size: int | None
    engine: EngineSettings

    def work(self, state: FederationState) -> list[LocalWork]:
        """The local work of the next round's participants."""
        return self.federation.work(state, self.participants[state.round])

    def given(self, choice: EngineChoice) -> EngineChoice:
        """The choice of another simulation; a `UserError` if this device does not have its back end."""
        if not choice.is_possible_on(self.federation.objective.device):
            raise UserError(f"engine.backend {choice.backend} is not possible here: it needs an NVIDIA GPU")
        return choice

    def choice(self, state: FederationState) -> EngineChoice:
        """The engine's choice; with one thread for small models, as in `fedflat run`."""
        if is_small(self.federation.local) and self.engine.backend != "parallel":
            torch.set_num_threads(1)
        if not self.participants:
            return unmeasured(self)
        steps = self.local_steps * sum(len(active) for active in self.participants)
        return choose_engine(self, state, _LOG.info, steps=steps)

    def calibration_key(self) -> dict[str, Any]:
        """See `Trainable`. The code of models and methods is not part of it: stored choices are checked."""
        objective, components = self.federation.objective, self.federation.method.by_slot()
        return {
            "model": [str(objective.module), str(objective.dtype), *map(list, objective.layout.shapes)],
            "data": [*self.federation.local.input_shape, *self.federation.client_sizes],
            "local_steps": self.local_steps,
            "batch_size": self.batch_size,
            "participants": len(self.participants[0]),
            "method": {slot: type(component).__qualname__ for slot, component in components.items()},
        }


def _settings(engine: str | EngineChoice) -> EngineSettings:
    """The settings of the engine; a `UserError` for an unknown back end.

    A result's choice may be replaced by a simpler one during the simulation, as it was in the first one.
    """
    if not isinstance(engine, str | EngineChoice):
        raise UserError(f"engine = {engine!r} (allowed: the name of a back end, or an EngineChoice)")
    backend = "auto" if isinstance(engine, EngineChoice) else engine
    return EngineSettings.parse({"backend": backend, "seeds": "apart"}, "engine")


def _log(news: object) -> None:
    _LOG.info("engine: %s", news)


def _check_participants(participants: Sequence[Sequence[int]], clients: int) -> None:
    if not isinstance(participants, Sequence) or not all(isinstance(active, Sequence) for active in participants):
        raise UserError(f"participants = {participants} (allowed: for each round a list of ids, such as [[0, 1], [1]])")
    for t, active in enumerate(participants):
        if not active or len(set(active)) < len(active) or not set(active) <= set(range(clients)):
            raise UserError(
                f"participants of round {t} are {list(active)}: "
                f"they must be distinct ids 0 to {clients - 1}, at least one"
            )
