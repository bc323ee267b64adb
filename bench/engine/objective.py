"""A model's loss as a function of one flat parameter vector."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import grad_and_value
from torch.nn.modules.dropout import _DropoutNd

from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.evaluation import evaluate
from fedflat.bench.metrics.kinds.accuracy import Accuracy
from fedflat.bench.metrics.kinds.loss import MeanLoss
from fedflat.bench.models.buffer_mode import ALLOWED, BufferMode
from fedflat.bench.models.dropout import Draws, Dropout
from fedflat.bench.models.frozen_parts import frozen_parts, set_training, trained_buffers
from fedflat.bench.models.im2col import Im2col
from fedflat.bench.models.network import (
    Network,
    Variables,
    check_used,
    cross_entropy,
    has_auxiliary_heads,
    has_buffers,
)
from fedflat.bench.numerics.flat import FlatLayout
from fedflat.bench.numerics.precision import Precision, check_not_half


class Batched(Protocol):
    """Batches of inputs `[B, ...]` and labels `[B]` that can be iterated repeatedly: a list, or `Batches`."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...


Value = Callable[[Network, Variables], Tensor]
"""A loss as a function of a model and of variables; one number."""


class Gradients(Protocol):
    """The interface of gradient computations."""

    def __call__(self, w: Tensor, value: Value, variables: Variables) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Gradient `[P]` at the flat parameters w `[P]`, the loss there, and the gradients of the variables."""
        ...


class Objective:
    """Mean cross-entropy of a module, as a function of flat parameters `[P]` (order: `module.parameters()`).

    Frozen parameters, which require no gradients, are not in this vector and keep their values. Parts that have only
    such parameters keep their buffers, too: they are always in evaluation mode. All other parameters become views of
    the vector that was loaded last, so loading copies nothing. From then on the module belongs to this objective: no
    second objective may use it. A module with further buffers, such as BatchNorm's running statistics, needs a
    `buffer_mode`, else it is a `UserError`. torch's dropout is a `UserError`, too: its draws are not keyed, so no run
    could be resumed. Use fedflat.models.Dropout, which is active within `drawing` only. `channels_last`:
    the module receives images in this memory format, which is faster for most convolutions on a CPU. `im2col`:
    `functional_gradients` compute convolutions as matrix products.
    """

    def __init__(
        self,
        module: nn.Module,
        precision: Precision = "fp32",
        *,
        channels_last: bool = False,
        buffer_mode: BufferMode | None = None,
    ) -> None:
        if has_buffers(module) and buffer_mode is None:
            raise UserError(
                "the model has buffers (BatchNorm statistics?); use GroupNorm or no normalisation, or say what happens "
                f"to them, in an experiment, with the key buffers of a model of your own (allowed: {ALLOWED})"
            )
        if buffer_mode is not None and next(module.buffers(), None) is None:
            raise UserError(f"buffers: {buffer_mode}, but the model has no buffers (allowed: refuse, the default)")
        if not has_buffers(module):  # at most in frozen parts, where they stay
            buffer_mode = None
        if any(isinstance(layer, _DropoutNd) and layer.p > 0 for layer in module.modules()):
            raise UserError("the model has dropout, whose random draws cannot be repeated; use fedflat.models.Dropout")
        self.module = module
        self._frozen = frozen_parts(module)
        set_training(module, self._frozen)
        self.precision = precision
        self.channels_last = channels_last
        self.im2col = False
        self._dropouts = [layer for layer in module.modules() if isinstance(layer, Dropout) and layer.rate > 0]
        self._draws: Draws | None = None
        self._separable: bool | None = None
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.parameters = [parameter for _, parameter in trained]
        check_not_half(self.parameters)
        names_shapes = [(name, tuple(parameter.shape)) for name, parameter in trained]
        self.layout = FlatLayout(tuple(n for n, _ in names_shapes), tuple(s for _, s in names_shapes))
        self._loaded = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        if buffer_mode is not None:
            self._check_whole_numbers()
        self.buffer_mode = buffer_mode
        self.buffers = None if buffer_mode is None else self.current_buffers()
        """The buffers `[B]` with which models are evaluated; None if the model has none."""
        self._loaded_buffers = self.buffers
        self.load(self._loaded)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self._loaded.device

    @property
    def dtype(self) -> torch.dtype:
        """The parameters' number format."""
        return self._loaded.dtype

    @property
    def has_convolutions(self) -> bool:
        """Whether `im2col` has an effect."""
        return any(isinstance(layer, nn.Conv2d) for layer in self.module.modules())

    @property
    def has_dropout(self) -> bool:
        """Whether gradients depend on random draws."""
        return bool(self._dropouts)

    def is_separable(self, x: Tensor) -> bool:
        """Whether the scores of a sample depend on this sample only, tested on three inputs shaped like x `[B, ...]`.

        With batch statistics, they also depend on the other samples.
        """
        if self._separable is None:
            module, trial = self._train(), torch.rand((3, *x.shape[1:]), generator=torch.Generator().manual_seed(0))
            if not x.is_floating_point():  # whole numbers up to those of x
                trial = trial * (int(x.max()) + 1)
            with torch.no_grad():
                three, two = (Network(module)(self.inputs(trial[:count].to(x))) for count in (3, 2))
            self._separable = torch.allclose(three[:2], two, rtol=1e-3, atol=1e-4)
        return self._separable

    def initial(self) -> Tensor:
        """A copy of the module's current parameters `[P]`."""
        return self._loaded.clone()

    def load(self, w: Tensor) -> nn.Module:
        """The module with the flat parameters w `[P]` and `buffers`; from now on its parameters are views of w."""
        if self._loaded_buffers is not self.buffers and self.buffers is not None:
            self._load_buffers(self.buffers)
        return self._load(w)

    def _load(self, w: Tensor) -> nn.Module:
        self._loaded = w.detach()
        for parameter, view in zip(self.parameters, self.layout.split(self._loaded).values(), strict=True):
            parameter.data = view
        return self.module

    def _check_whole_numbers(self) -> None:
        """A `UserError` if a buffer has whole numbers that the parameters' number format cannot store."""
        for name, buffer in self.named_buffers().items():
            if not buffer.is_floating_point() and not torch.equal(buffer.to(self._loaded).to(buffer), buffer):
                most, kind = int(2 / torch.finfo(self.dtype).eps), str(self.dtype).removeprefix("torch.")
                raise UserError(
                    f"the model's buffer '{name}' has numbers that {kind}, in which all buffers are sent, cannot store "
                    f"exactly (allowed: whole numbers up to {most:,}; or keep it as a Python attribute of the module)"
                )

    def named_buffers(self) -> dict[str, Tensor]:
        """The module's buffers by name, without those of frozen parts."""
        return trained_buffers(self.module, self._frozen)

    def current_buffers(self) -> Tensor:
        """A copy of the module's buffers as one vector `[B]` in the parameters' number format, without frozen parts."""
        return torch.cat([b.detach().reshape(-1).to(self._loaded) for b in self.named_buffers().values()])

    @torch.no_grad()
    def _load_buffers(self, flat: Tensor) -> None:
        """Copy a vector `[B]` into the module's buffers; whole numbers, such as counts of batches, are rounded.

        A `UserError` if it has another length: a stored run may be of a version with other buffers in the vector.
        """
        buffers = list(self.named_buffers().values())
        if (own := sum(b.numel() for b in buffers)) != len(flat):
            raise UserError(f"the stored buffers are {len(flat)} numbers, but the model has {own}: train the run again")
        for buffer, part in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
            values = part.view(buffer.shape)
            buffer.copy_(values if buffer.is_floating_point() else values.round())
        self._loaded_buffers = flat

    def inputs(self, x: Tensor) -> Tensor:
        """Inputs `[B, ...]` in the memory format that the module receives."""
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last and x.ndim == 4 else x

    @contextmanager
    def drawing(self, draws: Draws) -> Iterator[None]:
        """In the block, dropout is active in gradients; each forward pass restarts the draws."""
        if not self._dropouts:
            yield
            return
        self._set_draws(draws)
        try:
            yield
        finally:
            self._set_draws(None)

    def _set_draws(self, draws: Draws | None) -> None:
        self._draws = draws
        for dropout in self._dropouts:
            dropout.draws = draws

    def _train(self) -> nn.Module:
        if not self.module.training:
            set_training(self.module, self._frozen)
        self._loaded_buffers = None  # forward passes change them
        return self.module

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """∇F(w) `[P]` and F(w) (a tensor of one number, detached) on the batch x `[B, ...]`, y `[B]`.

        F depends on w alone: a model with buffers is in evaluation mode, with `buffers`, and so is one whose auxiliary
        heads are for training only.
        """
        x = self.inputs(x)
        if self.buffers is None and not has_auxiliary_heads(self.module):
            return self.gradients(w, lambda model, _: cross_entropy(model(x), y), {})[:2]
        self.load(w).eval()
        return self._backward(w, lambda model, _: cross_entropy(model(x), y), {})[:2]

    def gradients(self, w: Tensor, value: Value, variables: Variables) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """`Gradients` by one backward pass through the module in training mode, which changes its buffers."""
        self._train()
        return self._backward(w, value, variables)

    def gradients_from(self, buffers: Tensor) -> Gradients:
        """`gradients` of a module with these buffers `[B]`; `current_buffers` are those after the latest one.

        A `UserError` if a mini-batch is too small for BatchNorm.
        """

        def gradients(w: Tensor, value: Value, variables: Variables) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
            self._load_buffers(buffers)
            try:
                return self.gradients(w, value, variables)
            except ValueError as error:
                raise UserError(
                    f"a local step fails: {error} (allowed: mini-batches of at least two samples, if the model has "
                    "BatchNorm; training.drop_last of an experiment leaves out short ones)"
                ) from None

        return gradients

    def _backward(self, w: Tensor, value: Value, variables: Variables) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        model = Network(self._load(w), None, self.precision, self.layout, self._draws)
        others = {name: v.detach().requires_grad_() for name, v in variables.items()}
        with torch.enable_grad():
            loss = value(model, others)
            parts = self.derivatives(loss, others)
        own = len(self.parameters)
        g = torch.cat([part.reshape(-1) for part in parts[:own]])
        return g, loss.detach(), dict(zip(others, parts[own:], strict=True))

    def derivatives(self, loss: Tensor, variables: Variables, *, create_graph: bool = False) -> list[Tensor]:
        """The gradients of a loss by each parameter and each variable; with a graph if they are differentiated again.

        A `UserError` if the loss does not depend on one of them. Only parameters of a model with auxiliary heads may
        be unused, in evaluation mode: their gradients are zero there.
        """
        inputs, own = [*self.parameters, *variables.values()], len(self.parameters)
        zeros = has_auxiliary_heads(self.module) and not self.module.training
        parts = torch.autograd.grad(loss, inputs, create_graph=create_graph, allow_unused=True, materialize_grads=zeros)
        check_used("parameters of the model", self.layout.names, parts[:own])
        check_used("variables of the method", variables, parts[own:])
        return list(parts)

    def functional_gradients(
        self, w: Tensor, value: Value, variables: Variables
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """`Gradients` as a pure function of tensors, for use under torch.func.vmap."""
        module = self._train()

        def loss_of(w: Tensor, variables: Variables) -> Tensor:
            return value(Network(module, self.layout.split(w), self.precision, self.layout, self._draws), variables)

        with Im2col() if self.im2col else nullcontext():
            (g, others), loss = grad_and_value(loss_of, argnums=(0, 1))(w, dict(variables))
        return g, loss, others

    @torch.no_grad()
    def teacher_scores(self, v: Tensor, x: Tensor) -> Tensor:
        """Scores of a mini-batch x by the module in training mode with other parameters v `[P]`, without a gradient.

        Buffers stay as they are, and dropout drops the same numbers as in the gradients of the local step.
        """
        model = Network(self._train(), None, self.precision, self.layout, self._draws)
        with Im2col() if self.im2col else nullcontext():
            return model.at(v)(x)

    @torch.no_grad()
    def logits(self, w: Tensor, x: Tensor, batch_size: int = 2000) -> Tensor:
        """Model outputs `[B, C]`, computed in batches."""
        model = Network(self.load(w), None, self.precision)
        if self.module.training:
            self.module.eval()
        return torch.cat([model(self.inputs(batch)) for batch in x.split(batch_size)])

    def loss(self, w: Tensor, data: Batched) -> float:
        """F(w): mean cross-entropy over all of the data."""
        return self.evaluate(w, data)[0]

    def evaluate(self, w: Tensor, data: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, float]:
        """Mean cross-entropy over all samples of the batches, and accuracy in percent (of all labelled pixels)."""
        values = evaluate(partial(self.logits, w), data, (MeanLoss(), Accuracy()))
        return values[MeanLoss.name], values[Accuracy.name]

    def full_gradient(self, w: Tensor, data: Batched) -> Tensor:
        """∇F(w) `[P]` over all of the data, its batches weighted by their size."""
        total, samples = torch.zeros_like(w), 0
        for x, y in data:
            total += self.gradient(w, x, y)[0] * len(y)
            samples += len(y)
        return total / samples


def dropout_shapes(objective: Objective, x: Tensor) -> Sequence[tuple[int, ...]]:
    """The shape that each dropout layer of the model receives for one input of x `[B, ...]`, in the order of use."""
    recorder = _Recorder()
    with objective.drawing(recorder), torch.no_grad():
        objective._train()(x[:1])
    return recorder.shapes


class _Recorder:
    """Draws that drop nothing, but record the shape of each dropout layer's input."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def restart(self) -> None:
        pass

    def uniform(self, x: Tensor) -> Tensor:
        self.shapes.append(tuple(x.shape[1:]))
        return torch.zeros_like(x)
