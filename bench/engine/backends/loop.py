"""One client after another, with the module itself: the plain path that all others must follow; best on a CPU."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from bench.engine.local import (
    AUGMENTATION,
    AUGMENTATION_OF_PASS,
    LocalResult,
    LocalTraining,
    LocalWork,
    MiniBatchGradient,
    Probe,
)
from bench.methods.base import ClientRound
from bench.models.dropout import KeyedDraws
from bench.numerics.streams import numpy_stream, torch_seed


class Loop:
    """Clients in turn; nothing but the results outlives a client's turn."""

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """As `Backend`."""
        return [_Turn(local, work).result(probe) for work in works]


class _Turn:
    """A client's local training. It holds no vectors: what the client leaves behind is gone with its `ClientRound`."""

    def __init__(self, local: LocalTraining, work: LocalWork) -> None:
        self.local, self.work = local, work
        self.step = 0
        self.scratch: dict[str, Tensor] = {}
        self.gradient_samples = 0

    def result(self, probe: Probe | None) -> LocalResult:
        """Train from start to finish."""
        local, work = self.local, self.work
        client = ClientRound(
            seed=work.seed,
            round=work.round,
            id=work.client,
            w_global=work.sent.model,
            received=work.sent.vectors,
            state=work.start(local.method),
            first_time=torch.tensor(work.first_time, device=work.sent.model.device),
            lr=work.lr,
            steps=len(work.plan),
            layout=local.objective.layout,
            input_shape=local.input_shape,
            full_gradient=self._full_gradient,
            scratch=self.scratch,
        )
        with local.objective.drawing(KeyedDraws(self._dropout_seed, local.objective.device)):
            w, total_loss = self._train(client, probe)
        model = local.method.correction.sent_model(w, client)
        steps = len(work.plan)
        return LocalResult(w, model, steps, client.upload, client.state, total_loss / steps, self.gradient_samples)

    def _train(self, client: ClientRound, probe: Probe | None) -> tuple[Tensor, Tensor]:
        """w_i⁺ `[P]`, and the sum of the losses of its steps."""
        local = self.local
        for part in local.method:
            part.start(client)
        w = client.w_global
        total_loss = torch.zeros((), dtype=w.dtype, device=w.device)
        for x, y in self._batches(self.work.plan, itertools.count(), AUGMENTATION):
            client.step = self.step
            gradient = self._gradient(x, y)
            w_next = local.step(w, client, gradient)
            if probe is not None:
                probe(self.work.client, self.step, w, gradient.point - w)
            w = w_next
            total_loss += gradient.loss
            self.gradient_samples += gradient.calls * len(x)
        for part in local.method:
            part.finish(w, client)
        return w, total_loss

    def _batches(self, plan: Sequence[Tensor], steps: Iterable[int], purpose: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets of the mini-batches, augmented. Indices and draws are transferred once for all."""
        local, work, sizes = self.local, self.work, [len(index) for index in plan]
        device = local.objective.device
        indices = torch.cat(list(plan)).to(device, non_blocking=True).split(sizes)
        draws = {}
        if local.augment is not None:
            drawn = local.augment.draw(numpy_stream(work.seed, purpose, work.round, work.client), sizes)
            draws = {name: torch.from_numpy(v).to(device, non_blocking=True).split(sizes) for name, v in drawn.items()}
        for k, (self.step, index) in enumerate(zip(steps, indices, strict=False)):
            x, y = local.data.batch(index)
            if local.augment is not None:
                x, y = local.augment(x, y, {name: parts[k] for name, parts in draws.items()})
            yield local.objective.inputs(x), y

    def _gradient(self, x: Tensor, y: Tensor) -> MiniBatchGradient:
        return MiniBatchGradient(self.local.objective.gradients, self.local.method.loss, x, y, None, self.scratch)

    def _full_gradient(self, w: Tensor) -> Tensor:
        """∇F_i(w) over all of the client's data in one pass, its batches weighted by their size."""
        plan = self.work.one_pass
        samples = sum(len(index) for index in plan)
        total = torch.zeros_like(w)
        for x, y in self._batches(plan, itertools.count(-1, -1), AUGMENTATION_OF_PASS):
            total = torch.add(total, self._gradient(x, y)(w), alpha=len(x) / samples)
        self.gradient_samples += samples
        return total

    def _dropout_seed(self) -> int:
        return torch_seed(self.work.seed, "dropout", self.work.round, self.work.client, self.step)
