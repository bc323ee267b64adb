"""Part of the Python API: federated training on the user's tensors, without files."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedflat.bench.code.named_code import parse_reference, trust_named
from fedflat.bench.data.partitions import parse_partition
from fedflat.bench.engine.batches import LocalSteps
from fedflat.bench.engine.divergence import evaluation_diverged
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import LocalWork
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.own_inputs import OwnSamples
from fedflat.bench.engine.own_tensors import Model, OwnData, copied, federation_on
from fedflat.bench.engine.participation import Participation, active_clients, counted
from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.engine.work import parse_work
from fedflat.bench.experiments.sections.evaluation import TEST
from fedflat.bench.input.arguments import Argument, checked, plain_mapping, whole
from fedflat.bench.input.bounds import MOST, Count, Images, Seed
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import literals
from fedflat.bench.methods.catalog import recipe
from fedflat.bench.methods.method import Method
from fedflat.bench.methods.recipe import Recipe
from fedflat.bench.metrics import metrics_of
from fedflat.bench.metrics.base import NO_CLIENTS, Metric
from fedflat.bench.metrics.evaluation import evaluate
from fedflat.bench.metrics.of_clients import label_shares
from fedflat.bench.metrics.user_metric import NOUN, UserMetric, kind_of
from fedflat.bench.models.network import has_buffers
from fedflat.bench.training.calibration import choose_engine, is_small
from fedflat.bench.training.engine import Engine
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.run_setup import images_per_batch
from fedflat.progress_bar import progress_bar
from fedflat.round_logs import OnRound
from fedflat.simulation_result import SimulationResult

Buffers = Literal["refuse", "average", "local"]

_LOG = logging.getLogger("fedflat.simulate")


_ID = whole(0, MOST - 1)


def _participants(given: Any) -> list[list[int]]:
    """Ids as whole numbers, for each round; a ValueError if these are no lists, or there is no round."""
    if not _is_list(given) or not len(given) or not all(map(_is_list, given)):
        raise ValueError("not allowed")
    return [[_ID.convert(i) for i in active] for active in given]


def _is_list(given: object) -> bool:
    return isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes)


Participants = Annotated[
    Sequence[Sequence[int]],
    Argument("for each round a list of ids, whole numbers, such as [[0, 1], [1]]", _participants),
]
ParticipationRule = Annotated[Mapping[str, Any], plain_mapping('{"sampling": "full"}')]
PartitionRule = Annotated[Mapping[str, Any], plain_mapping('{"name": "iid", "clients": 20}')]
WorkRule = Annotated[Mapping[str, Any], plain_mapping('{"name": "stragglers", "share": 0.5}')]
ScheduleRule = Annotated[Mapping[str, Any], plain_mapping('{"name": "cosine"}')]
Hyperparameters = Annotated[Mapping[str, Any], plain_mapping('{"rho": 0.1}')]
MethodOrName = Annotated[
    str | Recipe, Argument.instance("a name that `fedflat methods` lists, or a Recipe", str, Recipe)
]
EngineOrName = Annotated[
    str | EngineChoice, Argument.instance("the name of a back end, or an EngineChoice", str, EngineChoice)
]
Metrics = Annotated[
    Sequence[str | Callable[..., Any]],
    Argument('a list of names, functions and classes, such as ["macro_f1"]', lambda value: tuple(_names(value))),
]
Callback = Annotated[OnRound, Argument.instance("a function of a dictionary", Callable)]
Clients = Annotated[Sequence[OwnSamples] | OwnSamples, Argument.checked_later()]
Samples = Annotated[OwnSamples, Argument.checked_later()]


@checked
def simulate(
    method: MethodOrName,
    model: Model,
    clients: Clients,
    participants: Participants | None = None,
    *,
    lr: float,
    local_steps: Count | None = None,
    local_epochs: Count | None = None,
    batch_size: Images | None = None,
    work: WorkRule | None = None,
    rounds: Count | None = None,
    participation: Count | ParticipationRule | None = None,
    partition: PartitionRule | None = None,
    test: Samples | None = None,
    evaluate_every: Count = 1,
    metrics: Metrics = (),
    hyperparameters: Hyperparameters | None = None,
    server_lr: float | None = None,
    weight_decay: float | None = None,
    aggregation: str | None = None,
    lr_decay: float | None = None,
    lr_schedule: ScheduleRule | None = None,
    server_lr_schedule: ScheduleRule | None = None,
    clip: float | None = None,
    local_momentum: float | None = None,
    prox_split: bool | None = None,
    buffers: Buffers = "refuse",
    seed: Seed = 0,
    engine: EngineOrName = "auto",
    progress: bool | None = None,
    on_round: Callback | None = None,
    keep_every_round: bool = False,
) -> SimulationResult:
    """Train a model on the data of several clients with a federated method.

    - `method`: a name of the catalog (`fedflat methods` lists them), or a `Recipe`.
    - `model`: a module that maps inputs `[B, ...]` to class scores `[B, classes]`; its parameters are the start.
    - `clients`: inputs `[n_i, ...]` and labels `[n_i]` (class numbers from 0) of each client, as tensors or NumPy
      arrays, or an object that gives samples by number, such as a torch `Dataset`, whose samples are read once. A
      client's id is its position in the sequence. With `partition`: one pair, or one such object, of all clients
      together. Floating-point inputs are rounded to the model's number format; bytes (uint8) are normalised by mean and
      deviation of all clients' inputs, as those of an npz file are; other whole numbers, such as the token ids of
      `torch.nn.Embedding`, arrive as they are, in int64. Arrays in the model's number format are used without a copy
      with `partition`, and copied once without.
    - `partition`: how the data are divided, as `grid.partition` of an experiment, such as {"name": "dirichlet",
      "clients": 20, "alpha": 0.1}.
    - `rounds`: number of rounds.
    - `participation`: number of active clients per round, or a mapping as in `grid.participation` of an experiment,
      such as {"sampling": "bernoulli", "probability": 0.2}; with `availability`, which clients can take part. None: all
      clients.
    - `participants`: instead of rounds and participation, the ids of the active clients, for each round.
    - `local_steps`: number of mini-batch steps of an active client per round; or `local_epochs`: passes over its data.
    - `batch_size`: samples per local step, from shuffled passes over the client's data. None: all its samples.
    - `work`: how much of its local training a client does in a round, as `training.work` of an experiment, such as
      {"name": "stragglers", "share": 0.5}. None: all of it.
    - `lr`: local learning rate in the first round.
    - `test`: inputs and labels on which the global model is evaluated, every `evaluate_every` rounds and at the end;
      inputs of the same kind as those of the clients. `metrics`: further metrics on them, as `evaluation.metrics` of an
      experiment, such as ["macro_f1", "mine.py:tenth"]; your own also as functions and classes (`fedflat.evaluation`).
    - `hyperparameters`: values by name; hyper-parameters that are not given have their defaults. `schedules`: schedules
      over rounds by name, such as {"rho": 0.1, "schedules": {"rho": {"name": "cosine"}}}.
    - `server_lr`: learning rate of the server. None, as for all such values: that of the method's recipe, else 1.
    - `weight_decay`: ω in the local step w ← w − η (clip(q) + ω w), where q is the method's direction. None: 0.
    - `aggregation`: weights of active clients in the mean: by numbers of `samples`, their roots (`sqrt_samples`), or
      `uniform`. None: the weights that the method defines.
    - `lr_decay`: factor by which the local learning rate is multiplied after each round. None: 1.
    - `lr_schedule`, `server_lr_schedule`: schedules over rounds of the local rate, in place of `lr_decay`, and of the
      server's rate, as in `training` of an experiment, such as {"name": "cosine"}. None: constant.
    - `clip`: largest norm of q; longer directions are scaled down to it. None: no clipping.
    - `local_momentum`: heavy-ball momentum μ of local steps as in `torch.optim.SGD`: b ← μ b + clip(q) + ω w and
      w ← w − η b. The buffer b starts at zero in each round. None: no momentum.
    - `prox_split`: whether the term λw of a proximal method is added to the weight decay, and so not clipped.
    - `buffers`: what happens to the model's buffers, such as the statistics of BatchNorm: `average`, they are sent and
      averaged like parameters; `local`, each client keeps its own, and the evaluated model has the mean of the
      participants' buffers; `refuse`, the model must not have any outside of its frozen parts.
    - `seed`: seed of partition, participation, mini-batches and a method's random numbers; the initial model does not
      depend on it.
    - `engine`: back end, which changes speed, and numbers by rounding only: `loop`, `parallel`, `cohort` or `graph` as
      `engine.backend` of an experiment, or a result's `engine`. `auto`: the fastest one for this simulation on this
      machine, measured once, if the simulation is long enough to gain by a measurement, else `loop`.
    - `progress`: whether a progress bar is shown. None: on a terminal and in a notebook only.
    - `on_round`: called after each round with its row of the history, as a dictionary; for loggers, such as
      `fedflat.tensorboard("logs/fedsam")`. If it returns True, the simulation ends with this round.
    - `keep_every_round`: whether the result's `global_params` and `global_buffers` are those after each round, which
      all stay in memory and give `result.model_after(round)`, or only those after the last one.

    A simulation ends with a round that diverged, as a run does (see docs/results.md): its row has `diverged` 1.

    The simulation uses the model's number format, float32 or float64, and device; the model is not changed. With SWA,
    `global_params` are the averages as soon as an average exists.

    >>> import fedflat, torch
    >>> x, y = torch.randn(40, 3), torch.tensor([0, 1] * 20)
    >>> result = fedflat.simulate("fedsam", torch.nn.Linear(3, 2), (x, y), partition={"name": "iid", "clients": 4},
    ...                           participation=2, rounds=3, local_steps=2, lr=0.1, hyperparameters={"rho": 0.1})
    >>> result.history["round"].tolist(), result.model(x).shape
    ([1, 2, 3], torch.Size([40, 2]))

    A `UserError` if a method or hyper-parameter is unknown, a value is out of range, a client has no data or data that
    do not fit the model, a participant is not a client, or the model has buffers.
    """
    steps = LocalSteps(local_steps, local_epochs, batch_size, work=parse_work(work))
    settings = _settings(engine)
    built = _method(method, hyperparameters)
    given = {
        "lr_decay": lr_decay,
        "lr_schedule": lr_schedule,
        "server_lr_schedule": server_lr_schedule,
        "server_lr": server_lr,
        "weight_decay": weight_decay,
        "clip": clip,
        "local_momentum": local_momentum,
        "prox_split": prox_split,
        "aggregation": aggregation,
    }
    named = {name: value for name, value in given.items() if value is not None}
    step_settings = StepSettings.parse({**_recipe(method).training, "lr": lr, **named})
    with _same_threads_afterwards():
        objective = _objective(model, buffers)
        data = _data(objective, clients, partition, seed)
        schedule, counts = _schedule(participants, rounds, participation, len(data.split), seed)
        federation = federation_on(built, objective, data, step_settings, steps, seed, len(schedule))
        tested = None if test is None else data.test_batches(objective, test, _evaluation_batch(objective, data))
        judged = metrics_of(map(_metric, metrics), label_maps=False)
        columns = [f"{TEST}_{metric.name}" for metric in judged]
        if metrics and tested is None:
            raise UserError("metrics need samples to evaluate on: give test, inputs and labels")
        shares = _shares(objective, data, next(iter(tested))[0]) if metrics and tested else NO_CLIENTS
        state = federation.start(objective.initial())
        simulation = _Simulation(federation, schedule, steps, settings)
        choice = simulation.given(engine) if isinstance(engine, EngineChoice) else simulation.choice(state)
        trained = Engine([objective], choice, settings.backend, _log)
        kept: list[tuple[Tensor, Tensor | None]] = []
        rows: list[dict[str, float]] = []
        with progress_bar(built.name, len(schedule), "round", progress) as bar:
            while state.round < len(schedule) and not (rows and rows[-1]["diverged"]):
                works = simulation.work(state)
                results = trained.train(federation.local, works)
                state, measured = federation.aggregate(state, works, results)
                if not keep_every_round:
                    kept.clear()
                federation.evaluate_with(state)
                kept.append((federation.evaluated(state), objective.buffers))
                row = {"round": state.round, **measured.numbers(), **counts[state.round - 1]}
                is_due = state.round % evaluate_every == 0 or state.round == len(schedule)
                if tested and is_due and not row["diverged"]:
                    found = evaluate(partial(objective.logits, kept[-1][0]), tested, judged, shares)
                    scores = dict(zip(columns, found.values(), strict=True))
                    row |= scores | {"diverged": float(evaluation_diverged(scores))}
                    bar.set_postfix_str(f"test accuracy {row['test_accuracy']:.1f} %", refresh=False)
                rows.append(row)
                bar.update()
                wish = None if on_round is None else on_round(dict(row))
                if isinstance(wish, bool | np.bool_) and wish:
                    break
        final = objective.load(kept[-1][0].clone()).eval()
    history = pd.DataFrame(rows)
    if tested:  # also if the first rounds diverged, or none was evaluated
        history = history.reindex(columns=list(dict.fromkeys([*history, *columns])))
    params, kept_buffers = [w for w, _ in kept], [b for _, b in kept if b is not None]
    return SimulationResult(params, kept_buffers, history, choice, final, list(data.split), data.inputs)


@contextmanager
def _same_threads_afterwards() -> Iterator[None]:
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class _Simulation:
    """What calibration needs to know."""

    federation: Federation
    participants: Sequence[Sequence[int]]
    local_steps: LocalSteps
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
        sizes = self.federation.client_sizes
        whole = sum(self.local_steps.count(sizes[i]) for active in self.participants for i in active)
        return choose_engine(self, state, _LOG.info, steps=round(whole * self.local_steps.mean_share()))

    def calibration_key(self) -> dict[str, Any]:
        """See `Trainable`. The code of models and methods is not part of it: stored choices are checked."""
        objective, components = self.federation.objective, self.federation.method.by_slot()
        return {
            "model": [str(objective.module), str(objective.dtype), *map(list, objective.layout.shapes)],
            "data": [*self.federation.local.input_shape, *self.federation.client_sizes],
            "local_steps": self.local_steps.steps,
            **({} if self.local_steps.epochs is None else {"local_epochs": self.local_steps.epochs}),
            "batch_size": self.local_steps.batch_size,
            **({} if self.local_steps.work is None else {"work": self.local_steps.work.model_dump()}),
            "participants": len(self.participants[0]),
            "method": {slot: type(component).__qualname__ for slot, component in components.items()},
        }


def _settings(engine: str | EngineChoice) -> EngineSettings:
    """The settings of the engine; a `UserError` for an unknown back end.

    A result's choice may be replaced by a simpler one during the simulation, as it was in the first one.
    """
    backend = "auto" if isinstance(engine, EngineChoice) else engine
    if backend not in (names := literals(EngineSettings.model_fields["backend"].annotation)):
        raise unknown("engine", backend, map(str, names))
    return EngineSettings.parse({"backend": backend, "seeds": "apart"})


def _objective(model: nn.Module, buffers: Buffers) -> Objective:
    """The loss of a copy of the model; a `UserError` if the model and `buffers` do not fit."""
    if buffers == "refuse" and has_buffers(model):
        raise UserError(
            'the model has buffers, such as the statistics of BatchNorm (allowed: buffers="average", they are averaged '
            'like parameters; buffers="local", each client keeps its own; or a model without buffers)'
        )
    return Objective(copied(model), buffer_mode=None if buffers == "refuse" else buffers)


def _evaluation_batch(objective: Objective, data: OwnData) -> int:
    """The size of batches that fit into memory."""
    return images_per_batch(objective.device.type, data.data.input_shape)


def _shares(objective: Objective, data: OwnData, x: Tensor) -> NDArray[np.float64]:
    """How the samples of each client are divided over the classes `[N, C]`; x are inputs, of which one is passed."""
    classes = objective.logits(objective.initial(), x[:1]).shape[1]
    return label_shares(data.data.labels.cpu().numpy(), list(data.split), classes)


def _names(given: object) -> Sequence[str | Callable[..., Any]]:
    """Texts, functions and classes in a list or tuple; a ValueError for other values."""
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) or callable(one) for one in given):
        raise ValueError
    return given


def _metric(given: str | Callable[..., Any]) -> str | type[Metric]:
    """A name, or the metric that a function, a class, or a file that the caller names defines."""
    if not isinstance(given, str):
        return kind_of(given)
    if ":" not in given:
        return given
    trust_named(given)
    return UserMetric.parse(parse_reference(given, NOUN)).kind


def _log(news: object) -> None:
    _LOG.info("engine: %s", news)


def _method(method: str | Recipe, hyperparameters: Mapping[str, Any] | None) -> Method:
    """The method with its hyper-parameters; a `UserError` if there is none, or if a value is wrong."""
    return _recipe(method).build(hyperparameters or {})


def _recipe(method: str | Recipe) -> Recipe:
    return recipe(method) if isinstance(method, str) else method


def _data(objective: Objective, clients: Any, partition: Mapping[str, Any] | None, seed: int) -> OwnData:
    """The clients' data: given for each client, or divided by a partition."""
    if partition is None:
        if not isinstance(clients, Sequence) or (len(clients) == 2 and isinstance(clients[0], Tensor | np.ndarray)):
            raise UserError(
                "clients must be inputs and labels for each client, such as [(x0, y0), (x1, y1)]; all data together "
                'need a partition, such as partition={"name": "dirichlet", "clients": 20, "alpha": 0.1}'
            )
        return OwnData.of_clients(objective, clients)
    return OwnData.partitioned(objective, clients, parse_partition(partition, "simulate"), seed)


def _schedule(
    participants: Sequence[Sequence[int]] | None,
    rounds: int | None,
    participation: int | Mapping[str, Any] | None,
    clients: int,
    seed: int,
) -> tuple[Sequence[Sequence[int]], list[dict[str, float]]]:
    """The ids of the active clients, and what is counted of the others, for each round."""
    if participants is not None:
        if rounds is not None or participation is not None:
            raise UserError(
                "participants already says who takes part in each round: leave out rounds and participation"
            )
        _check_participants(participants, clients)
        return participants, [{} for _ in participants]
    if rounds is None:
        raise UserError("rounds is missing (allowed: a number of rounds; or participants, a list of ids per round)")
    rule: Any = {"sampling": "full"} if participation is None else participation
    if not isinstance(rule, Mapping):
        rule = {"active": rule}
    parsed = Participation.parse(rule, "participation")
    parsed.check(clients, rounds)
    active = [active_clients(parsed, clients, seed, t) for t in range(rounds)]
    return active, [counted(parsed, clients, seed, t) for t in range(rounds)]


def _check_participants(participants: Sequence[Sequence[int]], clients: int) -> None:
    for t, active in enumerate(participants):
        if not active or len(set(active)) < len(active) or not set(active) <= set(range(clients)):
            raise UserError(
                f"participants of round {t} are {list(active)}: "
                f"they must be distinct ids 0 to {clients - 1}, at least one"
            )
