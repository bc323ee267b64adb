"""The round loop: broadcast, local training of the active clients by a back end, aggregation, server step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedflat.bench.data.augmentation import Augment
from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.engine.accounting import check_sizes, declared, model_sizes, sent_size
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.backends.rows import to_device
from fedflat.bench.engine.batches import BatchSampler, LessWork
from fedflat.bench.engine.client_store import ClientStates
from fedflat.bench.engine.divergence import has_diverged
from fedflat.bench.engine.local import Backend, Broadcast, LocalResult, LocalTraining, LocalWork, Probe
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.row_values import row_values
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.aggregations import AGGREGATIONS
from fedflat.bench.methods.base import ServerRound, norm
from fedflat.bench.methods.common.buffers import BUFFERS, BufferExchange
from fedflat.bench.methods.method import Method
from fedflat.bench.metrics.quantity import Quantity
from fedflat.bench.models.buffer_mode import kept_positions

MEASURED = {
    "local_loss": Quantity("mean local loss", "lower"),
    "client_drift": Quantity("client drift"),
}
"""Measurements of each round that tables and figures show."""

RESERVED = frozenset({"round", "available", "server_lr", "local_steps", "teacher_passes", "diverged"})
"""Columns of the metrics that some runs have, or that are added later: a method's numbers cannot have these names."""


@dataclass
class FederationState:
    """The complete state of a federated run between two rounds; `round` counts the finished rounds.

    `clients` holds the vectors of the clients that have taken part, by client id.
    """

    round: int
    w: Tensor
    server: dict[str, Tensor]
    clients: ClientStates = field(default_factory=ClientStates)


class Federation:
    """A method applied to an objective and clients' data. States are passed in and returned; this object has none."""

    def __init__(
        self,
        method: Method,
        objective: Objective,
        data: DeviceData,
        batch_sampler: BatchSampler,
        client_sizes: Sequence[int],
        step_settings: StepSettings,
        seed: int,
        augment: Augment | None = None,
        rounds: int | None = None,
    ) -> None:
        if method.loss.moves_inputs and not data.dtype.is_floating_point:
            raise UserError(
                f"{method.name} moves inputs, but these are whole numbers (allowed: floating-point numbers)"
            )
        method.check_server_lr(step_settings.server_lr, has_schedule=step_settings.server_lr_schedule is not None)
        if rounds is not None:
            step_settings.check_rates(rounds)
            method.check_changes(rounds)
        elif method.schedules or step_settings.has_schedule:
            raise UserError("a schedule needs the number of rounds")
        if objective.buffers is not None:
            method = _with_buffers(method, objective)
        self.method = method
        self.objective = objective
        if augment is not None:
            augment = augment.of_stored(tuple(data.images.shape[1:]), data.crop)
        self.local = LocalTraining(method, objective, data, step_settings, augment)
        self._own_values = row_values(method, step_settings)
        self.batch_sampler = batch_sampler
        self.client_sizes = client_sizes
        self.step_settings = step_settings
        self.seed = seed
        self.rounds = rounds or 0
        """All rounds, which schedules need to know."""

    def start(self, w0: Tensor) -> FederationState:
        """The state before the first round, from initial parameters w0 `[P]`."""
        return FederationState(0, w0.clone(), self.method.start_server(w0))

    def learning_rate(self, round_index: int) -> float:
        """The local learning rate η_t."""
        lr = self.step_settings.round_rate(round_index, self.rounds)
        return lr if self.method.swa is None else self.method.swa.learning_rate(round_index, lr)

    def server_rate(self, round_index: int) -> float:
        """The learning rate η_g of the server."""
        return self.step_settings.round_server_rate(round_index, self.rounds)

    def evaluated(self, state: FederationState) -> Tensor:
        """The model that is evaluated: w^t, or SWA's average as soon as it contains a model."""
        return state.w if self.method.swa is None else self.method.swa.evaluated(state.w, state.server)

    def final(self, state: FederationState) -> FederationState:
        """The evaluated model, with its buffers if it has some, but without other states."""
        own = {} if self.objective.buffers is None else {BUFFERS: self._evaluated_buffers(state)}
        return FederationState(state.round, self.evaluated(state), own)

    def evaluate_with(self, state: FederationState) -> None:
        """From now on, the objective evaluates models with the buffers of this state, if the model has buffers."""
        if self.objective.buffers is not None:
            self.objective.buffers = self._evaluated_buffers(state)

    def _evaluated_buffers(self, state: FederationState) -> Tensor:
        b, swa = state.server[BUFFERS], self.method.swa
        return b if swa is None else swa.evaluated_buffers(b, state.server)

    def train_clients(
        self,
        state: FederationState,
        clients: Sequence[int],
        probe: Probe | None = None,
        participants: int | None = None,
    ) -> dict[int, LocalResult]:
        """Local training of the given clients, one after another, from the global model of `state`, which is unchanged.

        The clients are trained in the order of their ids, whatever the order of `clients`. `participants`: see `work`.
        """
        results = Loop().train(self.local, self.work(state, clients, participants), probe)
        return dict(zip(sorted(clients), results, strict=True))

    def work(self, state: FederationState, clients: Sequence[int], participants: int | None = None) -> list[LocalWork]:
        """The local work of the clients in the round after `state`, in the order of their ids.

        `participants`: the number of active clients of that round, of which clients learn; None: these clients.
        """
        lr, values = self.learning_rate(state.round), self.method.round_values(state.round, self.rounds)
        broadcast = self.broadcast(state)
        _check_teachers(self.method, broadcast)
        active = participants or len(clients)
        return [
            LocalWork(
                self.seed, state.round, i, lr, broadcast, state.clients,
                self.batch_sampler(i, state.round), self.batch_sampler.one_pass(i), active, values, self._own_values,
            )
            for i in sorted(clients)
        ]  # fmt: skip

    def broadcast(self, state: FederationState) -> Broadcast:
        """What the server sends to clients in the round after `state`."""
        method = self.method.with_values(self.method.round_values(state.round, self.rounds))
        return Broadcast(
            method.broadcast_model(state.w, state.server, state.round),
            method.broadcast(state.w, state.server, state.round),
        )

    def run_round(
        self, state: FederationState, active: Sequence[int], probe: Probe | None = None, backend: Backend | None = None
    ) -> tuple[FederationState, dict[str, float]]:
        """One round with the given active clients: the next state, and the round's measurements.

        Measurements: `active`, `lr`, `local_loss` (mean over the active clients), `client_drift` (mean distance of w_i⁺
        from the model that the client received; both means are unweighted), every broadcast scalar, such as FedGF's c,
        the values that follow a schedule, such as rho; `local_steps`, the mean number, if clients do less work; the
        round's costs: `download` and `upload` per client, `client_state` and `server_state` in model sizes, `gradients`
        per local step, and, if the loss has teachers, their forward passes per local step as `teacher_passes`; and
        `diverged`, see fedflat.bench.engine.divergence.
        """
        work = self.work(state, active)
        results = (backend or Loop()).train(self.local, work, probe)
        state, measured = self.aggregate(state, work, results)
        return state, measured.numbers()

    def aggregate(
        self, state: FederationState, work: Sequence[LocalWork], results: Sequence[LocalResult]
    ) -> tuple[FederationState, "Measurements"]:
        """The server's part of a round, from the clients' results: the next state, and the round's measurements."""
        local, P, broadcast = self.local.with_values(work[0].values), state.w.numel(), work[0].broadcast
        method = local.method
        moved = _differences([row.w for row in results], broadcast.model)
        whole = all(row.model is row.w for row in results)
        sent = moved if whole else _differences([row.model for row in results], broadcast.model)
        about = {
            "weights": self._weights([w.client for w in work]).to(state.w.dtype),
            "steps": torch.tensor([row.steps for row in results], dtype=state.w.dtype),
            "full_rate_steps": torch.tensor([local.full_rate_steps(row.steps) for row in results], dtype=state.w.dtype),
        }
        server = ServerRound(
            round=state.round,
            w=state.w,
            start=broadcast.model,
            state=dict(state.server),
            updates=moved if method.correction.reveals_update() else sent,
            sent=sent,
            uploads={name: torch.stack([row.upload[name] for row in results]) for name in results[0].upload},
            **to_device(about, state.w.device),
            n_clients=len(self.client_sizes),
            lr=work[0].lr,
            server_lr=self.server_rate(state.round),
        )
        for component in method:
            server.weights = _checked_weights(component.client_weights(server), component.name, len(results))
        for component in method:
            component.aggregate(server)
        w_next = method.server.step(server)
        for component in method:
            component.after_step(w_next, server)
        if method.swa is not None:
            averaged = method.swa.after_round(state.round, state.w, w_next, server.state)
            if BUFFERS in state.server:
                buffers = state.server[BUFFERS], server.state[BUFFERS]
                averaged |= method.swa.buffers_after_round(state.round, *buffers, server.state)
            server.state |= averaged
        clients = state.clients.updated({w.client: row.state for w, row in zip(work, results, strict=True)})
        samples = sum(len(index) for w in work for index in w.batches)
        local_loss = torch.stack([row.loss for row in results]).mean()
        known: dict[str, float | Tensor] = {
            "active": len(results),
            "lr": work[0].lr,
            "local_loss": local_loss,
            "client_drift": norm(moved).mean(),
            "download": sent_size([broadcast.model], [broadcast.vectors], P, declared(method, "download")),
            "upload": sent_size(
                list(server.sent), [self._sent(row.upload) for row in results], P, declared(method, "upload")
            ),
            "client_state": model_sizes([v for row in results for v in row.state.values()], P) / len(results),
            "server_state": model_sizes(server.state.values(), P),
            "gradients": sum(row.gradient_samples for row in results) / samples,
        }
        if self.step_settings.server_lr_schedule is not None:
            known["server_lr"] = server.server_lr
        values = method.named_values(work[0].values)
        if taken := (known.keys() | RESERVED) & values.keys():
            raise UserError(
                f"{method.name}: the hyper-parameter {min(taken)} changes from round to round, but this is already a "
                "column of the metrics; choose another name"
            )
        known |= values
        if isinstance(self.batch_sampler, LessWork):
            known["local_steps"] = sum(len(one.batches) for one in work) / len(work)
        if method.loss.teachers:
            known["teacher_passes"] = sum(row.teacher_samples for row in results) / samples
        scalars: dict[str, float | Tensor] = {
            name: value for name, value in broadcast.vectors.items() if value.numel() == 1 and name != BUFFERS
        }
        if taken := (known.keys() | RESERVED) & scalars.keys():
            raise UserError(
                f"{method.name} broadcasts a number named {min(taken)}, which is already a column of the metrics; "
                "choose another name"
            )
        diverged = has_diverged(w_next, local_loss)
        if isinstance(method.buffers, BufferExchange):
            diverged = diverged | method.buffers.diverged(state.server[BUFFERS], server.state[BUFFERS])
        known |= scalars | {"diverged": diverged}
        return FederationState(state.round + 1, w_next, server.state, clients), Measurements(
            known, w_next.device, method.name
        )

    def _sent(self, upload: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The part of an upload that counts as traffic."""
        exchange = self.method.buffers
        return exchange.sent(upload) if isinstance(exchange, BufferExchange) else upload

    def _weights(self, active: list[int]) -> Tensor:
        """Aggregation weights p_i `[M]` of the active clients."""
        rule = AGGREGATIONS[self.step_settings.aggregation or self.method.aggregation]
        return rule.weights([self.client_sizes[i] for i in active])


def _check_teachers(method: Method, broadcast: Broadcast) -> None:
    """A `UserError` if the loss reads a teacher that no component broadcasts, or one of another size than the model."""
    for name in method.loss.active_teachers():
        if name not in broadcast.vectors:
            sent = ", ".join(broadcast.vectors) or "nothing"
            raise UserError(
                f"{method.name}: the loss {method.loss.name} reads the teacher '{name}', which no component broadcasts "
                f"(broadcast: {sent})"
            )
        if (size := broadcast.vectors[name].shape) != broadcast.model.shape:
            raise UserError(
                f"{method.name}: the teacher '{name}' has the shape {list(size)}, but the parameters of the model have "
                f"the shape {list(broadcast.model.shape)}"
            )


def _checked_weights(weights: Tensor, component: str, clients: int) -> Tensor:
    if weights.shape != (clients,):
        raise UserError(
            f"client_weights of {component} has the shape {list(weights.shape)} (allowed: [{clients}], one weight for "
            "each active client)"
        )
    return weights


def _with_buffers(method: Method, objective: Objective) -> Method:
    """The method with what happens to the objective's buffers, which are those at the start."""
    assert objective.buffer_mode is not None  # checked with the buffers
    assert objective.buffers is not None
    kept = kept_positions(objective.buffer_mode, objective.named_buffers())
    return replace(method, buffers=BufferExchange(initial=objective.buffers.clone(), kept=kept))


def _differences(vectors: Sequence[Tensor], start: Tensor) -> Tensor:
    """v_i − start of M vectors `[P]`, as `[M, P]`."""
    rows = start.new_empty(len(vectors), len(start))
    for row, v in zip(rows, vectors, strict=True):
        torch.sub(v, start, out=row)
    return rows


@dataclass(frozen=True)
class Measurements:
    """A round's measurements, some of them still on the device."""

    values: dict[str, float | Tensor]
    device: torch.device
    method: str

    def numbers(self) -> dict[str, float]:
        """All of them as numbers, with one transfer from the device."""
        waiting = {name: value for name, value in self.values.items() if isinstance(value, Tensor)}
        packed = torch.stack([value.reshape(()).double().to(self.device) for value in waiting.values()]).tolist()
        found = {name: float(v) for name, v in (self.values | dict(zip(waiting, packed, strict=True))).items()}
        check_sizes(self.method, found)
        return found
