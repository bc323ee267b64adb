"""One client after another, with the module itself: the reference for all other back ends; best on a CPU."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from fedflat.bench.engine.backends.prepared import Prepared
from fedflat.bench.engine.backends.rows import Rows, to_device
from fedflat.bench.engine.local import (
    AUGMENTATION,
    AUGMENTATION_OF_PASS,
    LocalResult,
    LocalTraining,
    LocalWork,
    MiniBatchGradient,
    Probe,
    after_the_start,
)
from fedflat.bench.engine.objective import Gradients, Value
from fedflat.bench.methods.base import ClientRound
from fedflat.bench.methods.common.buffers import BUFFERS
from fedflat.bench.models.dropout import KeyedDraws
from fedflat.bench.models.network import Variables
from fedflat.bench.numerics.streams import torch_seed


class Loop:
    """The back end that trains the active clients one after another."""

    warm_up: int = 1

    def __init__(self) -> None:
        self._prepared = Prepared(_local_batches)

    def prepare(self, local: LocalTraining, works: Sequence[LocalWork]) -> None:
        """See `Backend`."""
        self._prepared.prepare(local, works)

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """See `Backend`."""
        device = local.objective.device
        teachers = len(local.method.loss.active_teachers())
        results: list[LocalResult] = []
        for work, batches in zip(works, self._prepared.take(local, works), strict=True):
            local = local.with_values(work.all_values)
            method = local.method
            data = _ClientData(local, work, batches)
            client = data.client_round()
            with local.objective.drawing(KeyedDraws(data.dropout_seed, device)):
                for component in method:
                    component.start(client)
                client.mini_batch_gradient = after_the_start
                w = client.w_global
                loss = torch.zeros((), dtype=w.dtype, device=device)
                for x, y in data.steps():
                    client.step = data.step
                    gradient = data.gradient(x, y)
                    w_next = local.step(w, client, gradient)
                    if probe is not None:
                        probe(work.client, client.step, w, gradient.point - w)
                    w = w_next
                    loss += gradient.loss
                    data.gradient_samples += gradient.calls * len(x)
                    data.teacher_samples += teachers * len(x)
                for component in method:
                    component.finish(w, client)
            model, steps = method.correction.uploaded_model(w, client), len(work.batches)
            results.append(
                LocalResult(
                    w, model, steps, client.upload, client.state, loss / steps,
                    data.gradient_samples, data.teacher_samples,
                )
            )  # fmt: skip
        return results


def _local_batches(local: LocalTraining, works: Sequence[LocalWork]) -> list[Rows]:
    """The indices and draws of each client's local steps, on the device."""
    device = local.objective.device
    return [to_device(work.host_batches(local.augment, AUGMENTATION), device) for work in works]


class _ClientData:
    """A client's mini-batches in one round, with their random draws, and the gradients on them.

    `batches` are the indices and draws of the local steps, on the device. `step` is the step of the latest draws: a
    local step, or −1, −2, ... for the batches of a pass over all data.
    """

    def __init__(self, local: LocalTraining, work: LocalWork, batches: Rows) -> None:
        self._local, self._work, self._local_batches = local, work, batches
        self._scratch: dict[str, Tensor] = {}
        self.step = 0
        self.gradient_samples = 0
        self.teacher_samples = 0

    def client_round(self) -> ClientRound:
        """The `ClientRound` of this client at the start of the round."""
        local, work, steps = self._local, self._work, len(self._work.batches)
        device, noise = work.broadcast.model.device, work.noise(local.method)
        return ClientRound(
            seed=work.seed,
            round=work.round,
            id=work.client,
            w_global=work.broadcast.model,
            received=work.broadcast.vectors,
            state=work.start(local.method),
            first_time=torch.full((), work.first_time, device=device),
            lr=work.lr,
            steps=steps,
            full_rate_steps=local.full_rate_steps(steps),
            participants=work.participants,
            layout=local.objective.layout,
            input_shape=local.input_shape,
            full_gradient=self.full_gradient,
            mini_batch_gradient=self.mini_batch_gradient,
            noise=to_device(noise, device) if noise else {},
            scratch=self._scratch,
        )

    def steps(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets of each local step."""
        return self._inputs(self._work.batches, self._local_batches, itertools.count())

    def _inputs(
        self, batches: Sequence[Tensor], prepared: Rows, steps: Iterable[int]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Augmented inputs and targets of the mini-batches, from the indices and draws of all of them."""
        local, sizes = self._local, [len(index) for index in batches]
        draws = {name: draw.split(sizes) for name, draw in prepared["draws"].items()}
        for k, (self.step, index) in enumerate(zip(steps, prepared["index"].split(sizes), strict=False)):
            x, y = local.batch(index)
            if local.augment is not None:
                x, y = local.augment(x, y, {name: parts[k] for name, parts in draws.items()})
            yield local.objective.inputs(x), y

    def gradient(self, x: Tensor, y: Tensor) -> MiniBatchGradient:
        """The gradient on a mini-batch, as a function of w."""
        return self._gradient(self._gradients_of_a_step(), x, y)

    def _gradient(self, gradients: Gradients, x: Tensor, y: Tensor) -> MiniBatchGradient:
        local = self._local
        teach = partial(local.teach, local.objective, self._work.broadcast.vectors)
        return MiniBatchGradient(gradients, local.method.loss, x, y, None, self._scratch, teach)

    def _gradients_of_a_step(self) -> Gradients:
        """The gradients of a local step, the first of which updates the client's buffers."""
        objective = self._local.objective
        if objective.buffers is None:
            return objective.gradients
        gradients, first = objective.gradients_from(self._scratch[BUFFERS]), iter([True])

        def updating(w: Tensor, value: Value, variables: Variables) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
            result = gradients(w, value, variables)
            if next(first, False):
                self._scratch[BUFFERS] = objective.current_buffers()
            return result

        return updating

    def _gradients_of_a_pass(self) -> Gradients:
        objective = self._local.objective
        return objective.gradients if objective.buffers is None else objective.gradients_from(self._scratch[BUFFERS])

    def full_gradient(self, w: Tensor) -> Tensor:
        """∇F_i(w) `[P]` over all of the client's data in one pass; batches are weighted by their size."""
        batches = self._work.one_pass
        samples = sum(len(index) for index in batches)
        total = torch.zeros_like(w)
        prepared = to_device(self._work.host_batches(self._local.augment, AUGMENTATION_OF_PASS), w.device)
        for x, y in self._inputs(batches, prepared, itertools.count(-1, -1)):
            gradient = self._gradient(self._gradients_of_a_pass(), x, y)
            total = torch.add(total, gradient(w), alpha=len(x) / samples)
        self._count(samples)
        return total

    def mini_batch_gradient(self, w: Tensor, step: int) -> Tensor:
        """∇F_i(w) `[P]` on the mini-batch of a local step, before the first one; zero if the client has fewer steps."""
        if step >= len(self._work.batches):
            return torch.zeros_like(w)
        x, y = next(itertools.islice(self.steps(), step, None))
        g = self._gradient(self._gradients_of_a_pass(), x, y)(w)
        self.step = 0
        self._count(len(x))
        return g

    def _count(self, samples: int) -> None:
        """Count a gradient before the first step."""
        self.gradient_samples += samples
        self.teacher_samples += samples * len(self._local.method.loss.active_teachers())

    def dropout_seed(self) -> int:
        """The seed of the dropout draws of the current step."""
        return torch_seed(self._work.seed, "dropout", self._work.round, self._work.client, self.step)
