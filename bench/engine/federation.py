"""The round loop: broadcast, local training of the active clients one after another, aggregation, server step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from pydantic import Field
from torch import Tensor

from bench.data.dataset import DeviceData
from bench.engine.batches import BatchPlan
from bench.engine.objective import Objective
from bench.frozen import Frozen
from bench.methods.base import ClientRound, Method, ServerRound, norm
from bench.methods.catalog import Aggregation

Probe = Callable[[int, int, Tensor, Tensor], None]
"""Called at each local step with (client, step, local iterate w, perturbation δ), both `[P]`."""


class Steps(Frozen):
    """Settings of the local step w ← w − η_t (clip(q) + ω w), momentum 0, and of the server's step."""

    lr: float = Field(gt=0, description="initial local learning rate η_l")
    lr_decay: float = Field(default=1.0, gt=0, le=1, description="factor γ on the local rate after each round")
    server_lr: float = Field(default=1.0, gt=0, description="server learning rate η_g")
    weight_decay: float = Field(default=0.0, ge=0, description="ω, added after clipping, at the unperturbed w")
    clip: float | None = Field(default=None, gt=0, description="largest norm of the direction q; null: off")
    aggregation: Aggregation | None = Field(default=None, description="p_i = 1/M or n_i/Σn_j; null: the method's own")

    def step(self, w: Tensor, q: Tensor, lr: float) -> Tensor:
        """The next local iterate; the direction is clipped first, weight decay comes after, at the unperturbed w."""
        if self.clip is not None:
            q = q * (self.clip / (norm(q) + 1e-6)).clamp(max=1)
        return w - lr * (q + self.weight_decay * w)


@dataclass
class FederationState:
    """All that a federated run carries from round to round; `round` counts the finished rounds.

    `clients` holds the vectors of those clients that have taken part, by client id.
    """

    round: int
    w: Tensor
    server: dict[str, Tensor]
    clients: dict[int, dict[str, Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalResult:
    """A client's model w_i⁺ after its local steps, its uploads and new state, and the mean loss of its steps.

    The loss of a step is the mini-batch loss where the step's gradient was taken: at w + δ for perturbed methods.
    """

    w: Tensor
    steps: int
    upload: dict[str, Tensor]
    state: dict[str, Tensor]
    loss: Tensor


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
    ) -> None:
        method.check_server_lr(steps.server_lr)
        self.method = method
        self.objective = objective
        self.data = data
        self.batch_plan = batch_plan
        self.client_sizes = client_sizes
        self.steps = steps
        self.seed = seed

    def start(self, w0: Tensor) -> FederationState:
        """The state before the first round, from initial parameters w0 `[P]`."""
        return FederationState(0, w0.clone(), self.method.start_server(w0))

    def learning_rate(self, round_index: int) -> float:
        """η_t."""
        return self.steps.lr * self.steps.lr_decay**round_index

    def train_clients(
        self, state: FederationState, clients: Sequence[int], probe: Probe | None = None
    ) -> dict[int, LocalResult]:
        """Local training of the given clients from the global model of `state`, which is not changed.

        Clients are served in the order of their ids, so the order of `clients` does not matter.
        """
        received = self.method.broadcast(state.w, state.server)
        return {i: self._train_client(state, i, received, probe) for i in sorted(clients)}

    def _train_client(
        self, state: FederationState, client_id: int, received: Mapping[str, Tensor], probe: Probe | None
    ) -> LocalResult:
        known = state.clients.get(client_id)
        zeros = {name: torch.zeros_like(state.w) for name in self.method.client_state} if known is None else {}
        plan = self.batch_plan(client_id, state.round)
        client = ClientRound(
            seed=self.seed,
            round=state.round,
            id=client_id,
            w_global=state.w,
            received=received,
            state=dict(known or zeros),
            first_time=known is None,
            lr=self.learning_rate(state.round),
            steps=len(plan),
            layout=self.objective.layout,
        )
        for part in self.method:
            part.start(client)

        w = state.w
        total_loss = torch.zeros((), dtype=w.dtype, device=w.device)
        for client.step, index in enumerate(plan):
            x, y = self.data.batch(index.to(w.device, non_blocking=True))
            gradient = _RecordedGradient(self.objective, x, y)
            g = self.method.perturbation.gradient(w, gradient, client)
            q = self.method.correction.direction(g, w, client)
            if probe is not None:
                probe(client_id, client.step, w, gradient.point - w)
            total_loss += gradient.loss
            w = self.steps.step(w, q, client.lr)

        for part in self.method:
            part.finish(w, client)
        return LocalResult(w, len(plan), client.upload, client.state, total_loss / len(plan))

    def run_round(
        self, state: FederationState, active: Sequence[int], probe: Probe | None = None
    ) -> tuple[FederationState, dict[str, float]]:
        """One round with the given active clients: the next state, and the round's measurements.

        Measurements: `active`, `lr`, `local_loss` (mean over clients), `client_drift` (mean ‖w_i⁺ − w^t‖), and every
        broadcast scalar, such as FedGF's c.
        """
        lr = self.learning_rate(state.round)
        results = self.train_clients(state, active, probe)
        rows = list(results.values())
        server = ServerRound(
            w=state.w,
            state=dict(state.server),
            updates=torch.stack([row.w - state.w for row in rows]),
            uploads={name: torch.stack([row.upload[name] for row in rows]) for name in rows[0].upload},
            weights=self._weights(list(results)).to(state.w),
            steps=torch.tensor([row.steps for row in rows]).to(state.w),
            n_clients=len(self.client_sizes),
            lr=lr,
            server_lr=self.steps.server_lr,
        )
        for part in self.method:
            part.aggregate(server)
        w_next = self.method.server.step(server)
        clients = state.clients | {i: row.state for i, row in results.items() if row.state}
        measured = {
            "active": float(len(rows)),
            "lr": lr,
            "local_loss": float(torch.stack([row.loss for row in rows]).mean()),
            "client_drift": float(norm(server.updates).mean()),
        }
        received = self.method.broadcast(state.w, state.server)
        measured |= {name: float(value) for name, value in received.items() if value.numel() == 1}
        return FederationState(state.round + 1, w_next, server.state, clients), measured

    def _weights(self, active: list[int]) -> Tensor:
        """Aggregation weights p_i `[M]`: 1/M, or n_i/Σ n_j over the active clients."""
        if (self.steps.aggregation or self.method.aggregation) == "uniform":
            return torch.full((len(active),), 1 / len(active), dtype=torch.float64)
        sizes = torch.tensor([self.client_sizes[i] for i in active], dtype=torch.float64)
        return sizes / sizes.sum()


class _RecordedGradient:
    """The mini-batch gradient as a function of w, remembering where it was taken last and the loss there."""

    def __init__(self, objective: Objective, x: Tensor, y: Tensor) -> None:
        self.objective = objective
        self.x = x
        self.y = y
        self.point: Tensor
        self.loss: Tensor

    def __call__(self, w: Tensor) -> Tensor:
        self.point = w
        g, self.loss = self.objective.gradient(w, self.x, self.y)
        return g
