"""The round loop: broadcast, local training of the active clients one after another, aggregation, server step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bench.data.dataset import DeviceData
from bench.engine.accounting import Backpropagation, model_sizes, traffic
from bench.engine.batches import BatchPlan
from bench.engine.client_store import ClientStates
from bench.engine.objective import Objective
from bench.engine.streams import numpy_stream, torch_seed
from bench.errors import UserError
from bench.frozen import Frozen
from bench.methods.base import Aggregation, ClientRound, Loss, Method, ServerRound, norm

Augment = Callable[[Tensor, Tensor, np.random.Generator], tuple[Tensor, Tensor]]
"""Inputs and labels of a mini-batch, augmented with draws from a generator."""

Probe = Callable[[int, int, Tensor, Tensor], None]
"""Called at each local step with (client, step, local iterate w, perturbation δ), both `[P]`."""


class Steps(Frozen):
    """Settings of the local step w ← w − η_t (clip(q) + ω w), momentum 0, and of the server's step."""

    lr: float = Field(gt=0, description="initial local learning rate η_l")
    lr_decay: float = Field(default=1.0, gt=0, le=1, description="factor γ on the local rate after each round")
    server_lr: float = Field(default=1.0, gt=0, description="server learning rate η_g")
    weight_decay: float = Field(default=0.0, ge=0, description="ω, added after clipping, at the unperturbed w")
    clip: float | None = Field(default=None, gt=0, description="largest norm of the direction q; null: off")
    prox_split: bool = Field(default=False, description="a proximal term's λw joins the decay, not the clipped q")
    aggregation: Aggregation | None = Field(default=None, description="p_i = 1/M or n_i/Σn_j; null: the method's own")

    def step(self, w: Tensor, q: Tensor, lr: float, proximal: float = 0.0) -> Tensor:
        """The next local iterate; the direction is clipped first, weight decay comes after, at the unperturbed w.

        `proximal` is the coefficient λ of w in q. With `prox_split` as in FL-Simulator's code, λw is not clipped.
        """
        decay = self.weight_decay
        if self.prox_split:
            q, decay = q - proximal * w, decay + proximal
        if self.clip is not None:
            q = q * (self.clip / (norm(q) + 1e-6)).clamp(max=1)
        return w - lr * (q + decay * w)


@dataclass
class FederationState:
    """All that a federated run carries from round to round; `round` counts the finished rounds.

    `clients` holds the vectors of those clients that have taken part, by client id.
    """

    round: int
    w: Tensor
    server: dict[str, Tensor]
    clients: ClientStates = field(default_factory=ClientStates)


@dataclass(frozen=True)
class LocalResult:
    """A client's model w_i⁺ after its local steps, what it sends (`model`, `upload`), its new state, its mean loss.

    The loss of a step is the mini-batch loss where the step's gradient was taken: at w + δ for perturbed methods.
    """

    w: Tensor
    model: Tensor
    steps: int
    upload: dict[str, Tensor]
    state: dict[str, Tensor]
    loss: Tensor


@dataclass(frozen=True)
class Sent:
    """What the server sends at the start of a round: the model to start from, and other named tensors."""

    model: Tensor
    vectors: Mapping[str, Tensor]


class Federation:
    """A method at work on an objective and clients' data. Its state is explicit; the object holds none."""

    def __init__(
        self,
        method: Method,
        objective: Objective,
        data: DeviceData,
        batch_plan: BatchPlan,
        client_sizes: Sequence[int],
        steps: Steps,
        seed: int,
        augment: Augment | None = None,
    ) -> None:
        method.check_server_lr(steps.server_lr)
        self.method = method
        self.objective = objective
        self.data = data
        self.batch_plan = batch_plan
        self.client_sizes = client_sizes
        self.steps = steps
        self.seed = seed
        self.augment = augment

    def start(self, w0: Tensor) -> FederationState:
        """The state before the first round, from initial parameters w0 `[P]`."""
        return FederationState(0, w0.clone(), self.method.start_server(w0))

    def learning_rate(self, round_index: int) -> float:
        """η_t."""
        lr = self.steps.lr * self.steps.lr_decay**round_index
        return lr if self.method.swa is None else self.method.swa.learning_rate(round_index, lr)

    def evaluated(self, state: FederationState) -> Tensor:
        """The model whose accuracy counts: w^t, or SWA's average once it holds a model."""
        return state.w if self.method.swa is None else self.method.swa.evaluated(state.w, state.server)

    def train_clients(
        self, state: FederationState, clients: Sequence[int], probe: Probe | None = None
    ) -> dict[int, LocalResult]:
        """Local training of the given clients from the global model of `state`, which is not changed.

        Clients are served in the order of their ids, so the order of `clients` does not matter.
        """
        return self._train(state, self._sent(state), clients, probe, Backpropagation())

    def _sent(self, state: FederationState) -> Sent:
        method = self.method
        return Sent(method.server.sent_model(state.w, state.server), method.broadcast(state.w, state.server))

    def _train(
        self, state: FederationState, sent: Sent, clients: Sequence[int], probe: Probe | None, work: Backpropagation
    ) -> dict[int, LocalResult]:
        return {i: self._train_client(state, i, sent, probe, work) for i in sorted(clients)}

    def _train_client(
        self,
        state: FederationState,
        client_id: int,
        sent: Sent,
        probe: Probe | None,
        work: Backpropagation,
    ) -> LocalResult:
        method = self.method
        known = state.clients.get(client_id)
        plan = self.batch_plan(client_id, state.round)
        client = ClientRound(
            seed=self.seed,
            round=state.round,
            id=client_id,
            w_global=sent.model,
            received=sent.vectors,
            state=dict(method.start_client(sent.model) if known is None else known),
            first_time=known is None,
            lr=self.learning_rate(state.round),
            steps=len(plan),
            layout=self.objective.layout,
            full_gradient=lambda w: self._full_gradient(w, client, work),
        )
        with self.objective.keyed_draws(lambda: torch_seed(self.seed, "dropout", state.round, client_id, client.step)):
            w, total_loss = self._local_steps(client, plan, probe, work)
        model = method.correction.sent_model(w, client)
        del client.full_gradient  # it refers to the client, whose tensors would wait for the garbage collector
        return LocalResult(w, model, len(plan), client.upload, client.state, total_loss / len(plan))

    def _local_steps(
        self, client: ClientRound, plan: Sequence[Tensor], probe: Probe | None, work: Backpropagation
    ) -> tuple[Tensor, Tensor]:
        """A client's training from start to finish: w_i⁺ `[P]`, and the sum of the losses of its steps."""
        method = self.method
        for part in method:
            part.start(client)

        w = client.w_global
        total_loss = torch.zeros((), dtype=w.dtype, device=w.device)
        for client.step, index in enumerate(plan):
            x, y = self._batch(index, client)
            gradient = _RecordedGradient(self.objective, method.loss, x, y, client)
            g = method.perturbation.gradient(w, gradient, client)
            q = method.correction.direction(g, w, client)
            if probe is not None:
                probe(client.id, client.step, w, gradient.point - w)
            method.loss.step_taken(client)
            total_loss += gradient.loss
            work.gradient_samples += gradient.calls * len(index)
            work.step_samples += len(index)
            w = self.steps.step(w, q, client.lr, method.correction.proximal())

        for part in method:
            part.finish(w, client)
        return w, total_loss

    def _batch(self, index: Tensor, client: ClientRound) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one mini-batch, augmented."""
        x, y = self.data.batch(index.to(client.w_global.device, non_blocking=True))
        if self.augment is None:
            return x, y
        return self.augment(x, y, numpy_stream(self.seed, "augmentation", client.round, client.id, client.step))

    def _full_gradient(self, w: Tensor, client: ClientRound, work: Backpropagation) -> Tensor:
        """∇F_i(w) over all of the client's data in one pass, its batches weighted by their size."""
        total, samples = torch.zeros_like(w), self.client_sizes[client.id]
        for k, index in enumerate(self.batch_plan.one_pass(client.id)):
            client.step = -1 - k  # its draws are not those of any local step
            x, y = self._batch(index, client)
            total += self.method.loss.gradient(self.objective, w, x, y, client)[0] * (len(index) / samples)
        client.step = 0
        work.gradient_samples += samples
        return total

    def run_round(
        self, state: FederationState, active: Sequence[int], probe: Probe | None = None
    ) -> tuple[FederationState, dict[str, float]]:
        """One round with the given active clients: the next state, and the round's measurements.

        Measurements: `active`, `lr`, `local_loss` (mean over clients), `client_drift` (mean distance of w_i⁺ from where
        the client started), every broadcast scalar, such as FedGF's c, and the round's costs: `download` and `upload`
        per client, `client_state` and `server_state` in model sizes, `gradients` per local step.
        """
        method, lr, P = self.method, self.learning_rate(state.round), state.w.numel()
        work = Backpropagation()
        sent = self._sent(state)
        results = self._train(state, sent, active, probe, work)
        rows = list(results.values())
        updates = torch.stack([row.w - sent.model for row in rows])
        server = ServerRound(
            round=state.round,
            w=state.w,
            start=sent.model,
            state=dict(state.server),
            updates=updates,
            models=torch.stack([row.model for row in rows]),
            uploads={name: torch.stack([row.upload[name] for row in rows]) for name in rows[0].upload},
            weights=self._weights(list(results)).to(state.w),
            steps=torch.tensor([row.steps for row in rows]).to(state.w),
            n_clients=len(self.client_sizes),
            lr=lr,
            server_lr=self.steps.server_lr,
        )
        for part in method:
            part.aggregate(server)
        w_next = method.server.step(server)
        if method.swa is not None:
            server.state |= method.swa.after_round(state.round, state.w, w_next, server.state)
        clients = state.clients.updated({i: row.state for i, row in results.items()})
        measured = {
            "active": float(len(rows)),
            "lr": lr,
            "local_loss": float(torch.stack([row.loss for row in rows]).mean()),
            "client_drift": float(norm(updates).mean()),
            **traffic(sent.vectors, [row.upload for row in rows], P),
            "client_state": model_sizes([v for row in rows for v in row.state.values()], P) / len(rows),
            "server_state": model_sizes(server.state.values(), P),
            "gradients": work.per_step,
        }
        scalars = {name: float(value) for name, value in sent.vectors.items() if value.numel() == 1}
        if taken := measured.keys() & scalars:
            raise UserError(f"{method.name} broadcasts a number named {min(taken)}, which is a column of the metrics")
        measured |= scalars
        return FederationState(state.round + 1, w_next, server.state, clients), measured

    def _weights(self, active: list[int]) -> Tensor:
        """Aggregation weights p_i `[M]`: 1/M, or n_i/Σ n_j over the active clients."""
        if (self.steps.aggregation or self.method.aggregation) == "uniform":
            return torch.full((len(active),), 1 / len(active), dtype=torch.float64)
        sizes = torch.tensor([self.client_sizes[i] for i in active], dtype=torch.float64)
        return sizes / sizes.sum()


class _RecordedGradient:
    """The mini-batch gradient as a function of w, remembering how often and where it was taken, and the loss there."""

    def __init__(self, objective: Objective, loss: Loss, x: Tensor, y: Tensor, client: ClientRound) -> None:
        self._gradient: Callable[[Tensor], tuple[Tensor, Tensor]]
        self._gradient = lambda w: loss.gradient(objective, w, x, y, client)
        self.calls = 0
        self.point: Tensor
        self.loss: Tensor

    def __call__(self, w: Tensor) -> Tensor:
        self.calls += 1
        self.point = w
        g, self.loss = self._gradient(w)
        return g
