"""What a method is made of: perturbation × correction × server, written on flat parameter vectors.

    perturbation   the point at which a client takes its gradient    g = ∇F_i(w + δ)
    correction     the direction that it makes of the gradient       q = g + ...
    server         the next global model, from all uploads           w^{t+1}
    loss           F_i itself, the mean over a mini-batch: cross-entropy in all methods but two

Between the first two and the third, every method takes the same local step  w ← w − η_t (clip(q) + ω w).

A component holds hyper-parameters and nothing else. What lasts from round to round are tensors with a name:
`client_state` of each client that has taken part, `server_state` of the server; the engine keeps them and hands
them in. Norms and products go over the last dimension only.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from bench.input.errors import UserError
from bench.methods.swa import SWA
from bench.models.network import Network, Variables
from bench.numerics.flat import FlatLayout
from bench.numerics.streams import torch_stream

EPS = 1e-12

Aggregation = Literal["uniform", "samples"]
"""How the server weighs clients: p_i = 1/M, or n_i/Σn_j."""

Gradient = Callable[[Tensor], Tensor]
"""Mini-batch gradient as a function of the flat parameters `[P]`; the same batch at every call."""


def norm(v: Tensor) -> Tensor:
    """Euclidean norm over all coordinates of the model, kept as a last dimension of size 1."""
    length: Tensor = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return length


def unit(v: Tensor) -> Tensor:
    """v / (‖v‖ + 1e-12): the direction of v, and exactly zero where v is zero."""
    return v / (norm(v) + EPS)


def along(v: Tensor, length: float) -> Tensor:
    """length · unit(v) in one pass over v beside its norm's."""
    return v * (length / (norm(v) + EPS))


class CannotBatchError(Exception):
    """A method asks for something that exists for one client at a time only."""


@dataclass
class ClientRound:
    """What a client knows during one round, and what it leaves behind.

    `w_global` is the model as received; `received` holds the other broadcast tensors; `state` the client's own
    vectors, to be replaced by `Component.finish`; `first_time` is true while it has none but those of
    `Component.start_client`; `upload` what is sent beside the model update; `scratch` lives for this round only. `step`
    counts the local steps, from 0. `w_global` is w^t, or what a server that looks ahead sends in its place.

    In a cohort, `id` is None, and `round`, `lr` and `steps` are tensors of one number.
    """

    seed: int
    round: int | Tensor
    id: int | None
    w_global: Tensor
    received: Mapping[str, Tensor]
    state: dict[str, Tensor]
    first_time: Tensor
    lr: float | Tensor
    steps: int | Tensor
    layout: FlatLayout
    input_shape: tuple[int, ...]
    full_gradient: Gradient
    step: int = 0
    scratch: dict[str, Tensor] = field(default_factory=dict)
    upload: dict[str, Tensor] = field(default_factory=dict)

    def stream(self, purpose: str) -> torch.Generator:
        """A CPU generator for random draws of the current local step, keyed so that every repetition draws the same."""
        if self.id is None or isinstance(self.round, Tensor):
            raise CannotBatchError("random draws of a method are one client's")
        return torch_stream(self.seed, purpose, self.round, self.id, self.step)


@dataclass
class ServerRound:
    """What the server knows when all uploads of round t are in.

    `w` is w^t, `start` the model that clients started from: w^t itself, but for servers that look ahead. `updates` is
    `[M, P]`: Δ_i = w_i⁺ − start of each active client; `sent` likewise, of what each sent as its model: Δ_i itself, but
    for methods whose clients add their dual. `uploads` are the other uploads, stacked; `weights` `[M]` the aggregation
    weights p_i (they sum to 1); `steps` `[M]` the local steps K_i; `state` the server's named tensors, to be replaced,
    never edited in place.
    """

    round: int
    w: Tensor
    start: Tensor
    state: dict[str, Tensor]
    updates: Tensor
    sent: Tensor
    uploads: Mapping[str, Tensor]
    weights: Tensor
    steps: Tensor
    n_clients: int
    lr: float
    server_lr: float

    def mean(self, rows: Tensor) -> Tensor:
        """Σ_i p_i rows_i for rows `[M, P]`."""
        return self.weights @ rows

    @property
    def mean_update(self) -> Tensor:
        """Δ = Σ_i p_i (model_i − start), so that FedAvg is w + η_g Δ; the pseudo-gradient is −Δ."""
        return self.mean(self.sent)

    @property
    def mean_model(self) -> Tensor:
        """Σ_i p_i model_i."""
        return self.start + self.mean_update

    @property
    def mean_step(self) -> Tensor:
        """−Σ_i p_i Δ_i / K_i: the mean update of one local step, uphill."""
        return -(self.weights / self.steps) @ self.updates

    @property
    def mean_direction(self) -> Tensor:
        """−Σ_i p_i Δ_i / (K_i η_t): the mean update as a gradient (uphill), in units of one local step."""
        return self.mean_step / self.lr


class Component(BaseModel):
    """One part of a method. Hooks do nothing unless overridden; fields are hyper-parameters.

    State whose names are listed in `client_state` and `server_state` is model-sized and starts at zero; what starts
    elsewhere, or depends on hyper-parameters, overrides `start_client` and `start_server`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]
    client_state: ClassVar[tuple[str, ...]] = ()
    server_state: ClassVar[tuple[str, ...]] = ()
    takes_full_gradient: ClassVar[bool] = False
    """Whether it calls `ClientRound.full_gradient`, for which a cohort gets all of its clients' data ready."""

    def start_client(self, w: Tensor) -> dict[str, Tensor]:
        """A client's vectors before its first round, from the model that it receives."""
        return {name: torch.zeros_like(w) for name in self.client_state}

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """Server vectors before the first round."""
        return {name: torch.zeros_like(w0) for name in self.server_state}

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the server sends beside the model w^t at the start of a round."""
        return {}

    def start(self, client: ClientRound) -> None:
        """On the client, before its first local step."""

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """On the client, after its last local step, with the local model w_i⁺: new state and uploads."""

    def aggregate(self, server: ServerRound) -> None:
        """On the server, before the model step: new server state."""


class Perturbation(Component):
    """Where the gradient is taken."""

    @abstractmethod
    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """The perturbation δ at the local iterate w, both `[P]`. First gradients are neither clipped nor decayed."""

    def gradient(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """∇F_i(w + δ) on the same mini-batch that δ was computed from."""
        return gradient(w + self.delta(w, gradient, client))


class Correction(Component):
    """What is added to the gradient."""

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """The step's direction q, from the gradient g and the (unperturbed) local iterate w."""
        return g

    def proximal(self) -> float:
        """The coefficient of w in q: what `prox_split` moves from the clipped direction into the decay."""
        return 0.0

    def sent_model(self, w: Tensor, client: ClientRound) -> Tensor:
        """What the client sends as its model, after `finish`: w_i⁺, unless the method says otherwise."""
        return w


class Server(Component):
    """How uploads become the next model."""

    needs_client_state: ClassVar[tuple[str, ...]] = ()
    """Client state that the method's correction must keep for this server to make sense."""

    def sent_model(self, w: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The model that clients start from: w^t, unless the server looks ahead."""
        return w

    @abstractmethod
    def step(self, server: ServerRound) -> Tensor:
        """The next global model w^{t+1}, `[P]`."""

    def also_evaluated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Other models whose test accuracy is worth a column of the metrics, by name."""
        return {}

    def needs_unit_server_lr(self) -> bool:
        """Whether this server has no step size, so that `server_lr` must be 1."""
        return False


class Loss(Component):
    """What a client's gradient is the gradient of."""

    variables: ClassVar[tuple[str, ...]] = ()
    """Entries of `ClientRound.scratch` on which the loss depends, too; their gradients are left there as g_<name>."""
    needs_labels: ClassVar[bool] = False
    """Whether it cannot take class probabilities, as mixup makes them."""
    separable: ClassVar[bool] = True
    """Whether it is a mean over samples, so that samples of weight 0 may fill up a mini-batch."""

    @abstractmethod
    def value(self, model: Network, x: Tensor, y: Tensor, weights: Tensor | None, variables: Variables) -> Tensor:
        """F_i on the mini-batch x `[B, ...]`, y `[B]` (or class probabilities `[B, C]`); a tensor of one number.

        `weights` `[B]` sum to 1; None: all equal.
        """

    def step_taken(self, client: ClientRound) -> None:
        """After each local step."""


@dataclass(frozen=True)
class Method:
    """The parts with their hyper-parameters, the method's own weighting of clients, and SWA if it is wrapped."""

    name: str
    perturbation: Perturbation
    correction: Correction
    server: Server
    loss: Loss
    aggregation: Aggregation
    swa: SWA | None = None

    def check_server_lr(self, server_lr: float) -> None:
        """A `UserError` if the method has no server step size and one is given."""
        if self.server.needs_unit_server_lr() and server_lr != 1:
            raise UserError(f"{self.name} has no server step size: server_lr must be 1, not {server_lr:g}")

    def by_slot(self) -> dict[str, Component]:
        """The parts by slot. The loss goes first: a part that starts with a gradient needs it ready."""
        return {
            "loss": self.loss,
            "perturbation": self.perturbation,
            "correction": self.correction,
            "server": self.server,
        }

    def __iter__(self) -> Iterator[Component]:
        yield from self.by_slot().values()

    def start_client(self, w: Tensor) -> dict[str, Tensor]:
        """All vectors of a client before its first round."""
        return {name: v for part in self for name, v in part.start_client(w).items()}

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """All server vectors before the first round."""
        wrapped = {} if self.swa is None else self.swa.start_server(w0)
        return {name: v for part in self for name, v in part.start_server(w0).items()} | wrapped

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All that is sent to clients beside the model."""
        return {name: v for part in self for name, v in part.broadcast(w, state).items()}
