"""A model's loss and gradient as functions of one flat parameter vector."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from bench.errors import UserError
from bench.models.dropout import Dropout

ModelLoss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""A loss (one number) of a module on inputs x and targets y."""


class Batched(Protocol):
    """Inputs `[B, ...]` and labels `[B]` in so many batches, for as many passes as it takes: a list, or `Batches`."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...


def cross_entropy(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy; y are labels `[B]`, or class probabilities `[B, C]`."""
    return F.cross_entropy(module(x), y)


@dataclass(frozen=True)
class Layout:
    """Where each named tensor of the model lies in the flat vector, in order of registration."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> list[int]:
        """Number of coordinates of each tensor."""
        return [int(torch.Size(shape).numel()) for shape in self.shapes]

    @property
    def total(self) -> int:
        """P, the length of the flat vector."""
        return sum(self.sizes)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector `[P]` in the tensors' own shapes."""
        parts = flat.split(self.sizes)
        return {n: p.view(s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}


class Objective:
    """Mean cross-entropy of a module, as a function of flat parameters `[P]` (order: `module.parameters()`).

    The module's parameters become views of one buffer, so loading a vector is one copy; the module belongs to
    this objective from then on (a second one on the same module would take its parameters away). Modules with
    buffers, such as BatchNorm's running statistics, are refused with a `UserError`: they would be state
    that no federated method here averages. So is torch's dropout: its draws are not keyed, and no run could resume.
    bench.models.dropout.Dropout is taken; it drops nothing but within `keyed_draws`.
    """

    def __init__(self, module: nn.Module) -> None:
        if any(True for _ in module.buffers()):
            raise UserError("the model has buffers (BatchNorm statistics?); use GroupNorm or no normalisation")
        if any(isinstance(part, _DropoutNd) and part.p > 0 for part in module.modules()):
            raise UserError(
                "the model has dropout, whose random draws cannot be repeated; use bench.models.dropout.Dropout"
            )
        self.module = module
        self._dropouts = [part for part in module.modules() if isinstance(part, Dropout) and part.rate > 0]
        self._draw_anew: Callable[[], object] | None = None
        self.parameters = list(module.parameters())
        names_shapes = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
        self.layout = Layout(tuple(n for n, _ in names_shapes), tuple(s for _, s in names_shapes))
        self._buffer = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        for parameter, view in zip(self.parameters, self.layout.split(self._buffer).values(), strict=True):
            parameter.data = view

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self._buffer.device

    @property
    def dtype(self) -> torch.dtype:
        """The parameters' number format."""
        return self._buffer.dtype

    def initial(self) -> Tensor:
        """A copy of the parameters `[P]` as they are in the module now."""
        return self._buffer.clone()

    def load(self, w: Tensor) -> nn.Module:
        """The module with the flat parameters w `[P]`."""
        self._buffer.copy_(w)
        return self.module

    @contextmanager
    def keyed_draws(self, seed: Callable[[], int]) -> Iterator[None]:
        """Within, gradients are those of the model with dropout; each draws its masks from a new stream of seed()."""
        if not self._dropouts:
            yield
            return
        generator = torch.Generator(self.device)
        self._draw_anew = lambda: generator.manual_seed(seed())
        self._lend(generator)
        try:
            yield
        finally:
            self._draw_anew = None
            self._lend(None)

    def _lend(self, generator: torch.Generator | None) -> None:
        for part in self._dropouts:
            part.generator = generator

    def gradient(self, w: Tensor, x: Tensor, y: Tensor, loss: ModelLoss = cross_entropy) -> tuple[Tensor, Tensor]:
        """∇F(w) `[P]` and F(w) (a tensor of one number, detached) on the batch x `[B, ...]`, y `[B]`."""
        return self.gradients(w, x, y, loss, ())[:2]

    def gradients(
        self, w: Tensor, x: Tensor, y: Tensor, loss: ModelLoss, others: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """As `gradient`, and from the same backward pass the gradients with respect to `others`, on which `loss`
        depends, too."""
        module = self.load(w)
        if not module.training:
            module.train()
        if self._draw_anew is not None:
            self._draw_anew()
        with torch.enable_grad():
            value = loss(module, x, y)
            parts = torch.autograd.grad(value, [*self.parameters, *others])
        own = parts[: len(self.parameters)]
        return torch.cat([part.reshape(-1) for part in own]), value.detach(), parts[len(own) :]

    @torch.no_grad()
    def logits(self, w: Tensor, x: Tensor, batch_size: int = 2000) -> Tensor:
        """Model outputs `[B, C]`, computed in batches."""
        module = self.load(w)
        if module.training:
            module.eval()
        return torch.cat([module(part) for part in x.split(batch_size)])

    def loss(self, w: Tensor, data: Batched) -> float:
        """F(w): mean cross-entropy over all of the data."""
        return self.evaluate(w, data)[0]

    def evaluate(self, w: Tensor, data: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, float]:
        """Mean cross-entropy over all samples of the batches, and accuracy in percent."""
        loss = correct = torch.zeros((), dtype=torch.float64, device=w.device)
        samples = 0
        for x, y in data:
            outputs = self.logits(w, x)
            loss = loss + F.cross_entropy(outputs, y, reduction="sum").double()
            correct = correct + (outputs.argmax(1) == y).sum()
            samples += len(y)
        return float(loss) / samples, 100 * float(correct) / samples

    def full_gradient(self, w: Tensor, data: Batched) -> Tensor:
        """∇F(w) `[P]` over all of the data, its batches weighted by their size."""
        total, samples = torch.zeros_like(w), 0
        for x, y in data:
            total += self.gradient(w, x, y)[0] * len(y)
            samples += len(y)
        return total / samples
