"""Counts the vectors of the model's length that the operations of a local step read and write."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tests.benchmarks.ours import VARIANTS, Ours
from tests.benchmarks.workload import Workload

OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_"}
"""In-place operations that do not read the values that they replace."""
MAKES = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
"""Operations that read only the shape of their input."""
FREE = {"empty_like", "new_empty", "new_empty_strided", "_local_scalar_dense"}


@dataclass(frozen=True)
class Fewest:
    """Vectors that a local step must read and write if each of its sums over all coordinates costs one pass.

    Only what a pass writes is available to the next one; what stays the same during a round is one vector.

        perturb   SAM's norm reads g₁; then w and g₁ are read, and w + δ is written. SMOO's norm reads g₁, μ_i, s; then
                  these and w are read, w + δ and μ_i written. TOGA's norm reads g₁ and A; then these and w are read,
                  and w + δ written. LESAM's δ is known: w and δ are read, w + δ written.
        step      the norm of the clip reads q; then q and w are read and w is written: 4.
        correct   what both of them must read for q in addition to g: c − c_i; or w for the norm, and λ(H_i − w^t) + βA
                  in both.
    """

    perturb: int
    correct: int
    step: int = 4

    @property
    def total(self) -> int:
        """All of them."""
        return self.perturb + self.correct + self.step


FEWEST: Mapping[str, Fewest] = {
    "fedavg": Fewest(0, 0),
    "fedsam": Fewest(4, 0),
    "fedsmoo": Fewest(9, 3),
    "fedlesam_s": Fewest(3, 2),
    "fedtoga": Fewest(6, 3),
}


class VectorTraffic(TorchDispatchMode):
    """Counts the numbers that operations on whole parameter vectors read and write; views cost nothing.

    Such an operation has a tensor whose last dimension is P, or a list of tensors of P numbers in all. Gathering the
    layers' gradients is one; the layers' own arithmetic is not.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length
        self.read = 0
        self.written = 0

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.name().removeprefix("aten::").split(".")[0]
        if name in FREE or _is_view(func) or not self._on_vectors((args, kwargs, result)):
            return result
        given = list(zip(func._schema.arguments, args, strict=False))
        given += [(argument, kwargs[argument.name]) for argument in func._schema.arguments if argument.name in kwargs]
        changed = [t for argument, value in given if _is_changed(argument) for t in _tensors(value)]
        only_read = [t for argument, value in given if not _is_changed(argument) for t in _tensors(value)]
        if name not in MAKES:
            overwritten = name in OVERWRITES or any(argument.is_out for argument, _ in given)
            self.read += _numbers(only_read if overwritten else [*only_read, *changed])
        self.written += _numbers(changed or _tensors(result))
        return result

    def _on_vectors(self, values: Any) -> bool:
        return any(t.dim() > 0 and t.shape[-1] == self._length for t in _tensors(values)) or any(
            sum(t.numel() for t in part) == self._length for part in _lists(values)
        )


def _is_view(func: torch._ops.OpOverload) -> bool:
    """Whether an operation returns a view of its input."""
    aliases = [returned.alias_info for returned in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _is_changed(argument: torch.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _tensors(values: Any) -> Iterator[Tensor]:
    return (value for value in tree_iter(values) if isinstance(value, Tensor))


def _lists(values: Any) -> Iterator[list[Tensor]]:
    """All lists of tensors."""
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if isinstance(values, list | tuple):
        if values and all(isinstance(value, Tensor) for value in values):
            yield list(values)
        else:
            for value in values:
                yield from _lists(value)


def _numbers(tensors: Iterable[Tensor]) -> int:
    """Distinct numbers in memory: a tensor counts once, an expanded tensor with the size of its storage."""
    return sum({t.data_ptr(): min(t.numel(), t.untyped_storage().size() // t.itemsize) for t in tensors}.values())


def vectors_per_step(workload: Workload, method: str, device: torch.device) -> tuple[float, float]:
    """Vectors of P numbers that a local step reads, and writes, outside forward and backward.

    The difference between a round with one step more and one with fewer: what a round costs once is not counted.
    """
    counts = []
    ours = Ours(workload, method, device, next(iter(VARIANTS.values())))
    for steps in (2, 3):
        with VectorTraffic(ours.parameters) as traffic:
            ours.round([0], steps * workload.batch)
        counts.append((traffic.read, traffic.written))
    (read_2, written_2), (read_3, written_3) = counts
    return (read_3 - read_2) / ours.parameters, (written_3 - written_2) / ours.parameters
