"""Local training in a round, composed of the method's components; the same code for one client and for a cohort."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from fedflat.bench.data.augmentation import Augment
from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.engine.objective import Gradients, Objective
from fedflat.bench.engine.row_values import STEP, with_later
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import ClientRound, Loss
from fedflat.bench.methods.method import Method, RoundValues
from fedflat.bench.models.network import Network, Variables
from fedflat.bench.numerics.streams import numpy_stream, torch_stream

AUGMENTATION, AUGMENTATION_OF_PASS = "augmentation", "augmentation of a pass over all data"
"""Purposes of random streams. In the keys of dropout draws, the batches of such a pass are steps −1, −2, ..."""

LOCAL_MOMENTUM = "local_momentum"
"""Name of the momentum's buffer b `[P]` in `ClientRound.scratch`, so that it begins anew in each round."""


@dataclass(frozen=True)
class Broadcast:
    """Everything that the server sends at the start of a round: the model to start from, and other named tensors."""

    model: Tensor
    vectors: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """The part of local training that all clients share."""

    method: Method
    objective: Objective
    data: DeviceData
    step_settings: StepSettings
    augment: Augment | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, after augmentation."""
        return self.data.input_shape if self.augment is None else self.augment.output_shape

    @property
    def blank(self) -> Tensor:
        """One input of zeros `[1, ...]`, in the number format of inputs."""
        return torch.zeros((1, *self.input_shape), dtype=self.data.dtype, device=self.objective.device)

    @property
    def is_separable(self) -> bool:
        """Whether the loss of a mini-batch is a mean of losses that depend on one sample each."""
        first = torch.zeros(1, dtype=torch.int64, device=self.objective.device)
        return self.method.loss.separable and self.objective.is_separable(self.data.batch(first)[0])

    def with_values(self, values: RoundValues) -> "LocalTraining":
        """The same with these hyper-parameters of the method and of the local step, which are not validated."""
        if not values:
            return self
        settings = self.step_settings
        if STEP in values:
            settings = settings.model_copy(update=dict(values[STEP]))
        return replace(self, method=self.method.with_values(values), step_settings=settings)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Images and labels of the samples in `index` `[B]` as augmentations get them; inputs, if there are none."""
        return self.data.batch(index) if self.augment is None else self.data.whole_batch(index)

    def step(self, w: Tensor, client: ClientRound, gradient: "MiniBatchGradient") -> Tensor:
        """The next local iterate, `[P]`."""
        g = self.method.perturbation.gradient(w, gradient, client)
        q = self.method.correction.direction(g, w, client)
        self.method.loss.step_taken(client)
        settings, proximal = self.step_settings, self.method.correction.proximal()
        lr = self.rate(client.lr, client.step, client.steps)
        if settings.local_momentum is None:
            return settings.step(w, q, lr, proximal)
        w, b = settings.momentum_step(w, q, client.scratch.get(LOCAL_MOMENTUM), lr, proximal)
        client.scratch[LOCAL_MOMENTUM] = b
        return w

    def teach(self, objective: Objective, received: Mapping[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        """The scores of each teacher of the loss on the mini-batch x, given what the client has received."""
        return {name: objective.teacher_scores(received[name], x) for name in self.method.loss.active_teachers()}

    def rate(self, lr: float | Tensor, step: int | Tensor, steps: int | Tensor) -> float | Tensor:
        """η_{t,k} of local step k, from 0, of a client with this number of steps; `lr` is η_t."""
        return self.method.correction.rate(self.step_settings.local_rate(lr, step, steps), step, steps)

    def full_rate_steps(self, steps: int) -> float:
        """Σ_k η_{t,k}/η_t of a client with this number of steps; exactly this number, if the rate is constant.

        A `UserError` if the method makes a rate negative.
        """
        rates = [float(self.rate(1.0, step, steps)) for step in range(steps)]
        wrong = next((step for step, rate in enumerate(rates) if not 0 <= rate < math.inf), None)
        if wrong is not None:
            raise UserError(
                f"{self.method.name}: rate gives {rates[wrong]:g} times the local rate in step {wrong + 1} of {steps} "
                "(allowed: numbers of at least 0)"
            )
        return float(sum(rates))


@dataclass(frozen=True)
class LocalWork:
    """One client's work in a round: the model it starts from, the states it may read, and the samples of its steps.

    `known` are the states of all clients that have taken part, `participants` is the number of active clients of the
    round, `values` are the hyper-parameters that change from round to round, `own` those of the run that others in its
    cohort may have otherwise (see row_values.py). `batches` has the sample indices `[B]` of each local step, `one_pass`
    those of all the client's data in batches; both are on the host.
    """

    seed: int
    round: int
    client: int
    lr: float
    broadcast: Broadcast
    known: Mapping[int, Mapping[str, Tensor]]
    batches: Sequence[Tensor]
    one_pass: Sequence[Tensor]
    participants: int
    values: RoundValues = field(default_factory=dict)
    own: RoundValues = field(default_factory=dict)

    @property
    def all_values(self) -> RoundValues:
        """The run's own values, with those of the round."""
        return with_later(self.own, self.values) if self.values else self.own

    @property
    def first_time(self) -> bool:
        """Whether the client has not taken part before."""
        return self.client not in self.known

    def host_batches(self, augment: Augment | None, purpose: str) -> dict[str, Any]:
        """The samples' indices `[n]` and draws `[n, ...]` of all mini-batches in a row, by `index` and `draws`.

        `purpose` is AUGMENTATION for the local steps, AUGMENTATION_OF_PASS for the pass over all data.
        """
        batches = self.batches if purpose == AUGMENTATION else self.one_pass
        drawn: Mapping[Any, Any] = {}
        if augment is not None:
            stream = numpy_stream(self.seed, purpose, self.round, self.client)
            drawn = augment.draw(stream, [len(index) for index in batches])
        return {
            "index": torch.cat(list(batches)),
            "draws": {name: torch.from_numpy(draw) for name, draw in drawn.items()},
        }

    def noise(self, method: Method) -> dict[str, Tensor]:
        """The vectors `[P]` of `ClientRound.noise`, on the host: one draw for each name."""
        w = self.broadcast.model
        return {name: self.normal(name, len(w), w.dtype) for component in method for name in component.noises()}

    def normal(self, purpose: str, count: int, dtype: torch.dtype) -> Tensor:
        """Standard normal numbers for this purpose, round and client."""
        stream = torch_stream(self.seed, purpose, self.round, self.client)
        return torch.randn(count, generator=stream, dtype=dtype)

    def start(self, method: Method) -> dict[str, Tensor]:
        """The client's vectors at the start of the round, read from the store."""
        return method.start_client(self.broadcast.model) if self.first_time else dict(self.known[self.client])


@dataclass(frozen=True)
class LocalResult:
    """A client's model w_i⁺ after its local steps, its uploads (`model`, `upload`), its new state, its mean loss.

    The loss of a step is the mini-batch loss at the point of the step's last gradient: at w + δ for perturbed methods.
    `gradient_samples` counts the samples of all gradients, `teacher_samples` those of all forward passes of teachers.
    """

    w: Tensor
    model: Tensor
    steps: int
    upload: dict[str, Tensor]
    state: dict[str, Tensor]
    loss: Tensor
    gradient_samples: int
    teacher_samples: int

    def has_bits_of(self, other: "LocalResult") -> bool:
        """Whether model, uploads, state and loss are the same bits: all that the server and later rounds read."""
        one, another = (
            {"w": result.w, "model": result.model, "loss": result.loss}
            | {f"upload.{name}": v for name, v in result.upload.items()}
            | {f"state.{name}": v for name, v in result.state.items()}
            for result in (self, other)
        )
        return one.keys() == another.keys() and all(torch.equal(v, another[name]) for name, v in one.items())


class Probe(Protocol):
    """An observer of local steps."""

    def __call__(self, client: int, step: int, w: Tensor, delta: Tensor, /) -> None:
        """Called after each local step with the local iterate w and the perturbation δ, both `[P]`."""
        ...


class Backend(Protocol):
    """A way to compute the local training of several clients; all back ends give the same numbers up to rounding.

    `warm_up` is the number of calls for works of one kind before a call takes the time that all later ones take.
    """

    warm_up: int

    def prepare(self, local: LocalTraining, works: Sequence[LocalWork]) -> None:
        """Do the host's part of `train` for these works, which may be trained next: it changes no result.

        An error here is raised by `train`, if these works are trained next.
        """
        ...

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """The results in the order of `works`, which belong to one round and one method."""
        ...


def after_the_start(w: Tensor, step: int) -> Tensor:
    """`ClientRound.mini_batch_gradient` once the local steps have begun: a `UserError`."""
    raise UserError("mini_batch_gradient is possible in start only, before the first local step")


class MiniBatchGradient:
    """The gradient on one mini-batch as a function of w `[P]`.

    It records the number of `calls`, and `point` and `loss` of the last one. `weights` `[B]` of the samples sum to 1;
    None: all samples are weighted equally. `teach` returns the scores of the loss's teachers on the mini-batch.
    """

    def __init__(
        self,
        gradients: Gradients,
        loss: Loss,
        x: Tensor,
        y: Tensor,
        weights: Tensor | None,
        scratch: dict[str, Tensor],
        teach: Callable[[Tensor], Variables] | None = None,
    ) -> None:
        self._gradients = gradients
        self._names = loss.variables
        self._scratch = scratch
        self._teach = teach
        self._scores: dict[str, Tensor] = {}
        scores = self._scores  # not through self, whose circular reference would keep vectors until they are collected

        def value(model: Network, variables: Variables) -> Tensor:
            return loss.value(model, x, y, weights, {**variables, **scores})

        self._value = value
        self._x = x
        self.calls = 0
        self.point: Tensor
        self.loss: Tensor

    def __call__(self, w: Tensor) -> Tensor:
        """∇F_i(w); the gradients of the loss's variables are stored in `scratch` as g_<name>."""
        if self.calls == 0 and self._teach is not None:
            self._scores.update(self._teach(self._x))
        self.calls += 1
        self.point = w
        variables = {name: self._scratch[name] for name in self._names}
        g, self.loss, others = self._gradients(w, self._value, variables)
        self._scratch.update({f"g_{name}": v for name, v in others.items()})
        return g
