"""The components of a method: perturbation × correction × server × loss, written on flat parameter vectors.

    perturbation   the point at which a client computes its gradient    g = ∇F_i(w + δ)
    correction     the direction of the local step                      q = g + ...
    server         the next global model, computed from all uploads     w^{t+1}
    loss           F_i, the mean over a mini-batch; cross-entropy for all methods except FedRCL and FedRobust

All methods take the same local step  w ← w − η_t (clip(q) + ω w),  with local learning rate η_t and weight decay ω.
With `training.local_momentum` μ, it is  b ← μ b + clip(q) + ω w,  w ← w − η_t b,  where b starts at zero in each round.

A component object holds hyper-parameters only. State that lasts from round to round consists of named tensors: the
`client_state` of each client that has taken part, and the `server_state`. The engine stores them and passes them to the
hooks. Norms are computed over the last dimension, so that the same code serves one client `[P]` and several `[C, P]`.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedflat.bench.methods.marks import Search
from fedflat.bench.metrics.quantity import Quantity
from fedflat.bench.models.network import Network, Variables
from fedflat.bench.numerics.flat import FlatLayout
from fedflat.bench.numerics.streams import torch_stream

EPS = 1e-12


Gradient = Callable[[Tensor], Tensor]
"""The gradient on one mini-batch, the same at every call, as a function of the flat parameters `[P]`."""

MiniBatchGradientAt = Callable[[Tensor, int], Tensor]
"""The gradient `[P]` on the mini-batch of a local step, as a function of the flat parameters `[P]` and of the step."""


def norm(v: Tensor) -> Tensor:
    """Euclidean norm over all coordinates of the model; the last dimension stays, with size 1."""
    length: Tensor = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return length


def unit(v: Tensor) -> Tensor:
    """v / (‖v‖ + 1e-12): the direction of v, and exactly zero for v = 0."""
    return v / (norm(v) + EPS)


def along(v: Tensor, length: float | Tensor) -> Tensor:
    """length · unit(v), without an intermediate vector for unit(v)."""
    return v * (length / (norm(v) + EPS))


def plus(a: Tensor, b: Tensor, times: float | Tensor) -> Tensor:
    """a + times · b, where `times` is a hyper-parameter: a number, or a tensor of one number."""
    return torch.addcmul(a, b, times) if isinstance(times, Tensor) else torch.add(a, b, alpha=times)


def at_most(number: int | Tensor, most: int) -> int | Tensor:
    """The smaller one of a number of a client's round, such as its steps, and of `most`."""
    return number.clamp(max=most) if isinstance(number, Tensor) else min(number, most)


class CannotBatchError(Exception):
    """A hook uses something that is only available when clients are trained one at a time."""


@dataclass
class ClientRound:
    """The data of one client in one round: the input of the client hooks, and the place for their results.

    `w_global` is the model that the client received: w^t, or the look-ahead point of the server. `received` holds the
    other broadcast tensors. `state` holds the client's stored tensors; `Component.finish` replaces them. `first_time`
    is true in the client's first round, when `state` is what `Component.start_client` returned. `upload` holds what is
    sent in addition to the model. `scratch` lasts for this round only; its entry local_momentum belongs to the local
    step. `step` counts the local steps from 0. `full_rate_steps` is Σ_k η_{t,k}/η_t, the number of steps at the rate of
    the round whose rates have the same sum: `steps`, if the rate is constant. `participants` is the number M of active
    clients. `noise` holds the vectors that the method's components name in `noises`.

    When clients are trained in a batch, `id` is None, and `round`, `lr`, `steps`, `full_rate_steps` and `participants`
    are tensors of one number. So is `step` from the second step on, if the step is a CUDA graph.
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
    full_rate_steps: float | Tensor
    participants: int | Tensor
    layout: FlatLayout
    input_shape: tuple[int, ...]
    full_gradient: Gradient
    mini_batch_gradient: MiniBatchGradientAt
    noise: Mapping[str, Tensor]
    step: int | Tensor = 0
    scratch: dict[str, Tensor] = field(default_factory=dict)
    upload: dict[str, Tensor] = field(default_factory=dict)

    @property
    def rate_sum(self) -> float | Tensor:
        """Σ_k η_{t,k}, the sum of the rates of all local steps of the round: K_i η_t, if the rate is constant."""
        return self.full_rate_steps * self.lr

    def stream(self, purpose: str) -> torch.Generator:
        """A CPU generator for the current step: equal seed, round, client and step give equal numbers."""
        if self.id is None or isinstance(self.round, Tensor) or isinstance(self.step, Tensor):
            raise CannotBatchError("a method draws random numbers, which is possible for one client at a time only")
        return torch_stream(self.seed, purpose, self.round, self.id, self.step)


@dataclass
class ServerRound:
    """The data of the server after all uploads of round t: the input of the server hooks.

    `w` is w^t. `start` is the model that clients started from: w^t, or the look-ahead point of the server. `sent`
    `[M, P]` are the models that the M active clients sent, minus start: Δ_i = w_i⁺ − start, unless the correction sends
    another model than w_i⁺. `updates` `[M, P]` are what the server knows of Δ_i: `sent`, unless the correction reveals
    Δ_i. `uploads` are the other uploads, stacked. `weights` `[M]` are the aggregation weights p_i, which sum to 1.
    `steps` `[M]` are the numbers of local steps K_i, `full_rate_steps` `[M]` are Σ_k η_{t,k}/η_t. `state` holds the
    server's tensors: hooks replace them and never change them in place.
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
    full_rate_steps: Tensor
    n_clients: int
    lr: float
    server_lr: float

    def mean(self, rows: Tensor) -> Tensor:
        """Σ_i p_i rows_i for rows `[M, P]`."""
        return self.weights @ rows

    @property
    def mean_update(self) -> Tensor:
        """Δ = Σ_i p_i (model_i − start). FedAvg is w + η_g Δ; the pseudo-gradient is −Δ."""
        return self.mean(self.sent)

    @property
    def mean_model(self) -> Tensor:
        """Σ_i p_i model_i."""
        return self.start + self.mean_update

    @property
    def mean_step(self) -> Tensor:
        """−Σ_i p_i Δ_i / K_i: the mean update per local step, with the sign of a gradient."""
        return -(self.weights / self.steps) @ self.updates

    @property
    def mean_direction(self) -> Tensor:
        """−Σ_i p_i Δ_i / Σ_k η_{t,k}: the mean update divided by the sum of the rates of the client's K_i local steps.

        It has the sign and the unit of a gradient. If the rate is constant, it is −Σ_i p_i Δ_i / (K_i η_t).
        """
        return -(self.weights / self.full_rate_steps) @ self.updates / self.lr


class Component(BaseModel):
    """A component of a method. The fields are its hyper-parameters; the hooks do nothing unless overridden.

    The tensors named in `client_state` and `server_state` have the size of the model and start at zero. Override
    `start_client` or `start_server` for tensors that start elsewhere, or that depend on hyper-parameters.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]
    client_state: ClassVar[tuple[str, ...]] = ()
    server_state: ClassVar[tuple[str, ...]] = ()
    measured: ClassVar[Mapping[str, Quantity]] = {}
    """Scalars of `broadcast` that tables and figures show: each round measures them."""
    takes_full_gradient: ClassVar[bool] = False
    """Whether the component calls `ClientRound.full_gradient`. If so, a cohort prepares all data of its clients."""
    takes_mini_batch_gradient: ClassVar[bool] = False
    """Whether the component calls `ClientRound.mini_batch_gradient`, which is possible in `start` only."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Components that the component presumes in other slots: their names by slot."""
    weighted_by_samples: ClassVar[bool] = False
    """Whether clients may have unequal weights p_i. A method weights by samples if all its components allow it."""

    def start_client(self, w: Tensor) -> dict[str, Tensor]:
        """The initial state of a client, given the model that it receives in its first round."""
        return {name: torch.zeros_like(w) for name in self.client_state}

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """The initial state of the server."""
        return {name: torch.zeros_like(w0) for name in self.server_state}

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """The named tensors that the server sends in addition to the model w^t at the start of round t, from 0.

        An override may leave the argument t out.
        """
        return {}

    def start(self, client: ClientRound) -> None:
        """Runs on the client before its first local step."""

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Runs on the client after its last local step: sets new state and uploads, given the local model w_i⁺."""

    def round_values(self, t: int) -> dict[str, float]:
        """The hyper-parameters that the component itself changes from round to round: their values in round t, from 0.

        In this round, all hooks but `start_client` and `start_server` find them in place of the given values.
        """
        return {}

    def upload_bits(self, name: str, v: Tensor) -> float | Tensor | None:
        """The bits in which a client sends the vector v; None: this component leaves them as they are.

        `name` is that of an entry of `ClientRound.upload`; or `model`, whose v is the sent model minus the received.
        Without any declaration, an upload has 32 bits per number, and single numbers are not counted.
        """
        return None

    def download_bits(self, name: str, v: Tensor) -> float | Tensor | None:
        """The same for what the server sends to a client: an entry of `broadcast`, or `model`, the model itself."""
        return None

    def needs_full_gradient(self) -> bool:
        """Whether the component calls `ClientRound.full_gradient` with these hyper-parameters."""
        return self.takes_full_gradient

    def noises(self) -> tuple[str, ...]:
        """Names of vectors `[P]` of standard normal numbers, which the client gets in `ClientRound.noise`.

        They are drawn anew for each client and round, from a stream with this name: equal seed, round and client give
        equal numbers, whatever the back end.
        """
        return ()

    def client_weights(self, server: ServerRound) -> Tensor:
        """The aggregation weights `[M]`, which sum to 1: those given by `server.weights`, unless a method has others.

        Runs before `aggregate`. All averages over clients then have these weights.
        """
        return server.weights

    def aggregate(self, server: ServerRound) -> None:
        """Runs on the server before `Server.step`: sets new server state."""

    def after_step(self, w: Tensor, server: ServerRound) -> None:
        """Runs on the server after `Server.step`, given the next global model w^{t+1}: sets new server state."""


class Perturbation(Component):
    """Decides at which point the gradient is computed."""

    ascends: ClassVar[bool] = True
    """Whether δ is meant to increase the loss; `fedflat check-method` then expects ⟨δ, ∇F_i(w)⟩ > 0 on average."""

    @abstractmethod
    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """The perturbation δ at the local iterate w, both `[P]`. `gradient` has no clipping and no weight decay."""

    def gradient(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """∇F_i(w + δ), on the mini-batch from which δ was computed."""
        return gradient(w + self.delta(w, gradient, client))


class Correction(Component):
    """Decides the direction of the local step, given the gradient."""

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """The direction q of the step, from the gradient g and the (unperturbed) local iterate w."""
        return g

    def rate(self, lr: float | Tensor, step: int | Tensor, steps: int | Tensor) -> float | Tensor:
        """The rate η_{t,k} of local step k, from 0, of a client with K_i `steps`; `lr` is that of the settings."""
        return lr

    def proximal(self) -> float:
        """The coefficient of w in q. `prox_split` moves this term from the clipped direction to the weight decay."""
        return 0.0

    def uploaded_model(self, w: Tensor, client: ClientRound) -> Tensor:
        """The model that the client sends, after `finish`: w_i⁺ by default.

        The server gets nothing else of w_i⁺: its `updates` are computed from what was sent.
        """
        return w

    def reveals_update(self) -> bool:
        """Whether the server can compute w_i⁺ from a sent model that is another one: its `updates` are then Δ_i."""
        return False


class Server(Component):
    """Computes the next global model."""

    needs_client_state: ClassVar[tuple[str, ...]] = ()
    """Client state that this server requires of the correction."""
    server_lr_search: ClassVar[Search | None] = None
    """The search range of its learning rate; None: that of `StepSettings`."""

    def broadcast_model(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> Tensor:
        """The model that clients start from in round t, from 0: w^t by default. An override may leave t out."""
        return w

    @abstractmethod
    def step(self, server: ServerRound) -> Tensor:
        """The next global model w^{t+1}, `[P]`."""

    def also_evaluated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Further models by name, whose test score is recorded in the metrics, too."""
        return {}

    def needs_unit_server_lr(self) -> bool:
        """Whether this server has no learning rate, so that `server_lr` must be 1."""
        return False


class Loss(Component):
    """The objective F_i of a client on a mini-batch."""

    variables: ClassVar[tuple[str, ...]] = ()
    """Tensors in `ClientRound.scratch` on which the loss depends, too. Their gradients are stored there as g_<name>."""
    label_maps: ClassVar[bool | None] = None
    """Whether it is for labels of pixels only; False: for labels of images only; None: for both."""
    needs_labels: ClassVar[bool] = False
    """Whether it requires labels, and therefore excludes mixup, which produces class probabilities."""
    teachers: ClassVar[tuple[str, ...]] = ()
    """Names of broadcast vectors `[P]` that are parameters of teachers. `value` finds the scores of each teacher on the
    mini-batch in `variables`, under this name. They are computed once per mini-batch, without a gradient."""
    moves_inputs: ClassVar[bool] = False
    """Whether it adds numbers to inputs, and therefore excludes whole numbers, such as token ids."""
    separable: ClassVar[bool] = True
    """Whether it is a (weighted) mean over samples, so that a mini-batch may be padded with samples of weight 0."""

    @abstractmethod
    def value(self, model: Network, x: Tensor, y: Tensor, weights: Tensor | None, variables: Variables) -> Tensor:
        """F_i on the mini-batch x `[B, ...]`, y `[B]` (or class probabilities `[B, C]`): a tensor of one number.

        `weights` `[B]` sum to 1; None means equal weights.
        """

    def active_teachers(self) -> tuple[str, ...]:
        """The teachers whose scores `value` reads with these hyper-parameters."""
        return self.teachers

    def step_taken(self, client: ClientRound) -> None:
        """Runs on the client after each local step."""
